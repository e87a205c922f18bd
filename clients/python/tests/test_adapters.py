from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fake_server import FakeServer

from qrae import AsyncClient, Client
from qrae._adapters import check, chunk

pytest.importorskip("langchain_core")
pytest.importorskip("llama_index.core")
from langchain_core.documents import Document
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from pydantic import ValidationError

from qrae.langchain import QraeCompressor
from qrae.llama_index import QraePostprocessor

QUERY = "where was tosk born"
TEXTS = ["herring in june", "tosk was born", "where lenses bend", "where was tosk born"]
ORDER = [3, 1, 2, 0]
SCORES = [1.0, 0.75, 0.25, 0.0]


def documents() -> list[Document]:
    return [
        Document(id=f"d{i}", page_content=text, metadata={"source": i, "nested": {"a": [1]}})
        for i, text in enumerate(TEXTS)
    ]


def nodes() -> list[NodeWithScore]:
    return [
        NodeWithScore(node=TextNode(id_=f"n{i}", text=text, metadata={"source": i}), score=0.5)
        for i, text in enumerate(TEXTS)
    ]


def compressor(server: FakeServer, **fields: Any) -> QraeCompressor:  # noqa: ANN401
    sync, other = Client(transport=server.transport), AsyncClient(transport=server.transport)
    return QraeCompressor(client=sync, async_client=other, **fields)


def postprocessor(server: FakeServer, **fields: Any) -> QraePostprocessor:  # noqa: ANN401
    sync, other = Client(transport=server.transport), AsyncClient(transport=server.transport)
    return QraePostprocessor(client=sync, async_client=other, **fields)


@pytest.mark.parametrize(
    ("fields", "kept"),
    [({}, 4), ({"top_n": 2}, 2), ({"top_n": 9}, 4), ({"threshold": 0.25}, 3), ({"top_n": 1, "threshold": 0.9}, 1)],
)
def test_the_best_are_kept(fields: dict[str, Any], kept: int) -> None:
    out = compressor(FakeServer(), **fields).compress_documents(documents(), QUERY)
    assert [d.metadata["source"] for d in out] == ORDER[:kept]
    assert [d.metadata["relevance_score"] for d in out] == SCORES[:kept]
    ranked = postprocessor(FakeServer(), **fields).postprocess_nodes(nodes(), query_str=QUERY)
    assert [n.node.metadata["source"] for n in ranked] == ORDER[:kept]
    assert [n.score for n in ranked] == SCORES[:kept]


def test_a_threshold_can_leave_nothing() -> None:
    assert compressor(FakeServer(), threshold=0.1).compress_documents(documents()[:1], QUERY) == []


def test_everything_but_the_score_is_untouched() -> None:
    given = documents()
    out = compressor(FakeServer()).compress_documents(given, QUERY)
    assert given == documents()
    for document in out:
        before = given[document.metadata["source"]]
        assert (document.id, document.page_content) == (before.id, before.page_content)
        assert {k: v for k, v in document.metadata.items() if k != "relevance_score"} == before.metadata
    given_nodes = nodes()
    ranked = postprocessor(FakeServer()).postprocess_nodes(given_nodes, query_str=QUERY)
    assert [n.score for n in given_nodes] == [0.5] * 4
    assert all(n.node is given_nodes[n.node.metadata["source"]].node for n in ranked)


def test_async_does_the_same() -> None:
    async def both() -> tuple[list[Document], list[NodeWithScore]]:
        one = await compressor(FakeServer(), top_n=2).acompress_documents(documents(), QUERY)
        bundle = QueryBundle(QUERY)
        return one, await postprocessor(FakeServer(), top_n=2).apostprocess_nodes(nodes(), query_bundle=bundle)

    out, ranked = asyncio.run(both())
    assert out == compressor(FakeServer(), top_n=2).compress_documents(documents(), QUERY)
    assert [n.score for n in ranked] == SCORES[:2]


def test_nothing_retrieved_asks_nothing() -> None:
    server = FakeServer()
    assert compressor(server).compress_documents([], QUERY) == []
    assert postprocessor(server).postprocess_nodes([], query_str=QUERY) == []
    assert asyncio.run(compressor(server).acompress_documents([], QUERY)) == []
    assert server.requests == []


def test_titles_and_options_reach_the_server() -> None:
    server = FakeServer()
    document = Document(page_content="x", metadata={"title": "T", "name": "N"})
    compressor(server, options={"orders": 2}).compress_documents([document], QUERY)
    compressor(server, title_key="name").compress_documents([document], QUERY)
    compressor(server, title_key=None).compress_documents([document], QUERY)
    node = NodeWithScore(node=TextNode(text="x", metadata={"title": "T"}))
    postprocessor(server, options={"orders": 2}).postprocess_nodes([node], query_str=QUERY)
    sent = [(body["chunks"][0].get("title"), body.get("orders")) for body in server.bodies]
    assert sent == [("T", 2), ("N", None), (None, None), ("T", 2)]
    assert all(body["chunks"][0]["text"] == "x" for body in server.bodies)


def test_bounds_that_make_no_sense_are_refused() -> None:
    for fields in ({"top_n": 0}, {"threshold": 1.5}):
        with pytest.raises(ValidationError):
            compressor(FakeServer(), **fields)
        with pytest.raises(ValidationError):
            postprocessor(FakeServer(), **fields)
    with pytest.raises(ValueError, match="threshold"):
        check(None, -0.1)


def test_a_title_that_is_none_is_left_out() -> None:
    assert chunk("x", {"title": ""}, "title") == {"text": "x"}
    assert chunk("x", {"title": 3}, "title") == {"text": "x"}
    assert chunk("x", {}, "title") == {"text": "x"}


def test_nodes_need_a_query() -> None:
    with pytest.raises(ValueError, match="query"):
        postprocessor(FakeServer()).postprocess_nodes(nodes())


def test_a_key_is_not_printed_nor_written_down() -> None:
    secret = QraePostprocessor.model_validate({"api_key": "hidden"})
    assert "hidden" not in repr(secret)
    assert "hidden" not in secret.to_json()
    assert "hidden" not in repr(QraeCompressor.model_validate({"api_key": "hidden"}))
