"""Clients that rerank: Cohere's, LangChain's, LlamaIndex's, Haystack's, LiteLLM, and Jina's requests as they are."""

from __future__ import annotations

import cohere
import httpx
import pytest
from corpus import BEST, QUESTION, TEXTS
from server import MODEL, Server


def check(pairs: list[tuple[int, float]], order: list[int]) -> None:
    """Indices and scores of an answer: all of the corpus or its first ones, the best first."""
    indices, scores = [index for index, _ in pairs], [score for _, score in pairs]
    assert indices == order[: len(pairs)]
    assert indices[0] == BEST
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


def test_cohere(server: Server, native_order: list[int]) -> None:
    client = cohere.ClientV2(api_key=server.key, base_url=server.url)
    answer = client.rerank(model=MODEL, query=QUESTION, documents=TEXTS)
    check([(r.index, r.relevance_score) for r in answer.results], native_order)
    assert len(answer.results) == len(TEXTS)
    assert answer.id
    assert answer.meta.billed_units.search_units == 1
    assert answer.meta.tokens.input_tokens > sum(len(text.split()) for text in TEXTS)
    two = client.rerank(model=MODEL, query=QUESTION, documents=TEXTS, top_n=2, max_tokens_per_doc=4096)
    assert [(r.index, r.relevance_score) for r in two.results] == [
        (r.index, r.relevance_score) for r in answer.results[:2]
    ]


def test_cohere_version_1(server: Server, native_order: list[int]) -> None:
    client = cohere.Client(api_key=server.key, base_url=server.url)
    documents = [{"text": text} for text in TEXTS]
    answer = client.rerank(model=MODEL, query=QUESTION, documents=documents, top_n=3, return_documents=True)
    check([(r.index, r.relevance_score) for r in answer.results], native_order)
    assert [r.document.text for r in answer.results] == [TEXTS[i] for i in native_order[:3]]


def test_cohere_reads_refusals(server: Server) -> None:
    client = cohere.ClientV2(api_key=server.key, base_url=server.url)
    with pytest.raises(cohere.NotFoundError):
        client.rerank(model="rerank-v3.5", query=QUESTION, documents=TEXTS)
    with pytest.raises(cohere.BadRequestError):
        client.rerank(model=MODEL, query=QUESTION, documents=TEXTS, top_n=-1)
    with pytest.raises(cohere.UnauthorizedError):
        cohere.ClientV2(api_key="wrong", base_url=server.url).rerank(model=MODEL, query=QUESTION, documents=TEXTS)


def test_langchain_cohere(server: Server, native_order: list[int]) -> None:
    from langchain_cohere import CohereRerank
    from langchain_core.documents import Document

    reranker = CohereRerank(base_url=server.url, cohere_api_key=server.key, model=MODEL, top_n=3)
    documents = [Document(page_content=text, metadata={"n": i}) for i, text in enumerate(TEXTS)]
    out = reranker.compress_documents(documents, QUESTION)
    check([(d.metadata["n"], d.metadata["relevance_score"]) for d in out], native_order)
    assert [d.page_content for d in out] == [TEXTS[i] for i in native_order[:3]]


@pytest.mark.parametrize("prefix", ["", "Bearer "])
def test_llama_index_tei(server: Server, native_order: list[int], prefix: str) -> None:
    from llama_index.core.schema import NodeWithScore, TextNode
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

    reranker = TextEmbeddingInference(base_url=server.url, top_n=4, auth_token=prefix + server.key)
    nodes = [NodeWithScore(node=TextNode(text=text, id_=str(i))) for i, text in enumerate(TEXTS)]
    out = reranker.postprocess_nodes(nodes, query_str=QUESTION)
    check([(int(n.node.node_id), n.score) for n in out], native_order)
    assert len(out) == 4


def test_haystack_tei(server: Server, native_order: list[int]) -> None:
    from haystack import Document
    from haystack.utils import Secret
    from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker

    documents = [Document(content=text, meta={"n": i}) for i, text in enumerate(TEXTS)]

    def ranked(**options: object) -> list[Document]:
        ranker = HuggingFaceTEIRanker(url=server.url, top_k=3, token=Secret.from_token(server.key), **options)
        return ranker.run(query=QUESTION, documents=documents)["documents"]

    out = ranked()
    check([(d.meta["n"], d.score) for d in out], native_order)
    assert len(out) == 3
    assert [d.meta["n"] for d in ranked(raw_scores=True)] == native_order[:3]


def test_haystack_reads_refusals(server: Server) -> None:
    from haystack import Document
    from haystack.utils import Secret
    from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker

    ranker = HuggingFaceTEIRanker(url=server.url, token=Secret.from_token(server.key), max_retries=0)
    with pytest.raises(Exception, match=r"400|long|tokens"):
        ranker.run(query=QUESTION, documents=[Document(content="word " * 20_000)])


@pytest.mark.parametrize("base", ["", "/v1"])
def test_litellm_rerank(server: Server, native_order: list[int], base: str) -> None:
    import litellm

    answer = litellm.rerank(
        model=f"hosted_vllm/{MODEL}",
        query=QUESTION,
        documents=TEXTS,
        api_base=server.url + base,
        api_key=server.key,
        top_n=3,
    )
    check([(r["index"], r["relevance_score"]) for r in answer.results], native_order)
    assert len(answer.results) == 3
    assert answer.meta["tokens"]["input_tokens"] > 0


def test_litellm_chat(server: Server) -> None:
    import litellm

    ask = {
        "model": f"hosted_vllm/{MODEL}",
        "api_base": server.v1,
        "api_key": server.key,
        "messages": [{"role": "user", "content": "Name three colours."}],
        "max_tokens": 16,
        "temperature": 0,
    }
    whole = litellm.completion(**ask)
    assert whole.choices[0].message.content
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    text = "".join(piece.choices[0].delta.content or "" for piece in litellm.completion(**ask, stream=True))
    assert text == whole.choices[0].message.content


def test_jina(server: Server, native_order: list[int]) -> None:
    body = {
        "model": MODEL,
        "query": QUESTION,
        "documents": [{"text": text} for text in TEXTS],
        "top_n": 3,
        "return_documents": True,
    }
    answer = httpx.post(f"{server.v1}/rerank", json=body, headers=server.headers, timeout=60).raise_for_status().json()
    check([(r["index"], r["relevance_score"]) for r in answer["results"]], native_order)
    assert [r["document"]["text"] for r in answer["results"]] == [TEXTS[i] for i in native_order[:3]]
    assert answer["usage"]["total_tokens"] > 0
    assert answer["model"] == MODEL


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_every_address_takes_both_dialects(server: Server, native_scores: list[float], path: str) -> None:
    def post(**body: object) -> httpx.Response:
        body = {"query": QUESTION, **body}
        return httpx.post(server.url + path, json=body, headers=server.headers, timeout=60)

    tei = post(texts=TEXTS, raw_scores=True, return_text=True).raise_for_status().json()
    assert {r["index"]: r["score"] for r in tei} == dict(enumerate(native_scores))
    assert all(r["text"] == TEXTS[r["index"]] for r in tei)
    answer = post(documents=TEXTS).raise_for_status().json()
    assert [r["index"] for r in answer["results"]] == [r["index"] for r in tei]
    both = post(documents=TEXTS, texts=TEXTS)
    assert (both.status_code, both.json()["error"]["type"]) == (400, "invalid_request_error")
    assert httpx.post(server.url + path, json={"query": "q", "texts": ["x"]}).status_code == 401
