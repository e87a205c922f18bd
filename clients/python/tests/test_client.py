from __future__ import annotations

import subprocess
import sys

import httpx
import pytest
from fake_server import FakeServer, error

from qrae import Chunk, Client, QraeError

CHUNKS = ["herring in june", "where tosk was born"]


def test_scores_are_typed_and_in_the_order_of_the_request() -> None:
    server = FakeServer()
    with Client("http://host", "key", transport=server.transport) as client:
        scores = client.score("where was tosk born", CHUNKS)
    first, second = scores.results
    assert (first.index, first.rank, first.score) == (0, 2, 0.0)
    assert (second.index, second.rank, second.score) == (1, 1, 1.0)
    assert first.flags.no_response
    assert not second.flags.no_response
    assert scores.ranked() == [second, first]
    assert second.explain is None
    assert [h.head for h in second.heads] == list(scores.heads) == ["L1H2", "L3H0"]
    assert (scores.head_set, scores.method.control) == ("tiny@0123456789ab", "null_query")
    assert (scores.usage.prompt_tokens, scores.usage.cached_tokens, scores.usage.shared_tokens) == (90, 10, 30)
    assert scores.timings.prefill_ms == 12.5
    assert scores.request_id == "r-1"


def test_a_request_holds_what_was_given_and_nothing_else() -> None:
    server = FakeServer()
    chunk: Chunk = {"id": 7, "title": "Tosk", "url": "u", "text": "born"}
    with Client("http://host", "key", transport=server.transport) as client:
        scores = client.score("q", [chunk, "x"], orders=3, explain=True, heads=["L1H2"])
        client.score("q", [])
    assert server.bodies[0] == {
        "query": "q",
        "chunks": [{"id": 7, "title": "Tosk", "url": "u", "text": "born"}, "x"],
        "orders": 3,
        "explain": True,
        "heads": ["L1H2"],
    }
    assert server.bodies[1] == {"query": "q", "chunks": []}
    assert server.requests[0].headers["authorization"] == "Bearer key"
    assert [result.id for result in scores.results] == [7, None]
    explained = scores.results[0].explain
    assert explained is not None
    assert (explained[0].end, explained[0].per_head) == (3, (0.5, 0.0))


def test_many_queries_are_one_request() -> None:
    server = FakeServer()
    with Client("http://host", transport=server.transport, model="tiny") as client:
        many = client.score_many(["tosk", "herring june"], CHUNKS)
    assert [[result.rank for result in query] for query in many.queries] == [[2, 1], [1, 2]]
    assert len(server.requests) == 1
    assert server.bodies[0]["model"] == "tiny"


def test_head_sets() -> None:
    with Client("http://host", transport=FakeServer().transport) as client:
        (head_set,) = client.head_sets()
    assert head_set.default
    assert (head_set.heads, head_set.provenance["n"]) == (("L1H2", "L3H0"), 60)


def test_address_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QRAE_BASE_URL", "http://elsewhere:1/v1/")
    monkeypatch.setenv("QRAE_API_KEY", "one,two")
    server = FakeServer()
    with Client(transport=server.transport) as client:
        client.score("q", [])
    assert str(server.requests[0].url) == "http://elsewhere:1/v1/qrae/score"
    assert server.requests[0].headers["authorization"] == "Bearer one"
    monkeypatch.delenv("QRAE_BASE_URL")
    with Client(transport=server.transport) as client:
        assert client.base_url == "http://127.0.0.1:8080"


def test_without_a_key_no_key_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QRAE_API_KEY", raising=False)
    server = FakeServer()
    with Client(transport=server.transport) as client:
        client.score("q", [])
    assert "authorization" not in server.requests[0].headers


def test_one_string_is_no_list_of_chunks() -> None:
    with Client(transport=FakeServer().transport) as client, pytest.raises(TypeError, match="list of chunks"):
        client.score("q", "one text")


def test_a_refusal_says_what_the_server_said() -> None:
    refusal = error(
        400,
        message="chunks[1].text: is too long",
        type="invalid_request_error",
        param="chunks[1].text",
        code="context_length_exceeded",
        headers={"x-request-id": "abc"},
    )
    server = FakeServer(refusal)
    with Client(transport=server.transport) as client, pytest.raises(QraeError) as caught:
        client.score("q", ["x"])
    e = caught.value
    assert (e.status, e.param, e.code, e.request_id) == (400, "chunks[1].text", "context_length_exceeded", "abc")
    assert (e.type, e.message) == ("invalid_request_error", "chunks[1].text: is too long")
    assert str(e) == "chunks[1].text: is too long (400, request abc)"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (httpx.Response(502, text="<html>Bad gateway</html>"), "502 Bad Gateway: <html>Bad gateway"),
        (httpx.Response(500, json=["odd"]), "500 Internal Server Error"),
        (httpx.Response(404, json={"error": "text"}), "404 Not Found"),
        (httpx.Response(200, json={"results": []}), "is it a qrae server"),
        (httpx.Response(200, text="hello"), "is it a qrae server"),
        (httpx.Response(200, json=[1]), "is it a qrae server"),
    ],
)
def test_whatever_comes_back_is_the_one_exception(answer: httpx.Response, words: str) -> None:
    with Client(transport=FakeServer(answer).transport) as client, pytest.raises(QraeError) as caught:
        client.score("q", ["x"])
    assert words in str(caught.value)
    assert caught.value.status == answer.status_code


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (httpx.ReadTimeout("slow"), "did not answer in time"),
        (httpx.ReadError("cut"), "failed: cut"),
        (httpx.ConnectError("refused"), "qrae serve"),
    ],
)
def test_no_answer_is_the_same_exception_without_a_status(failure: Exception, words: str) -> None:
    server = FakeServer(failure)
    client = Client("http://host", transport=server.transport, max_retries=0)
    with client, pytest.raises(QraeError) as caught:
        client.score("q", ["x"])
    assert caught.value.status is None
    assert words in str(caught.value)
    assert caught.value.__cause__ is failure


def test_importing_the_package_imports_no_framework() -> None:
    code = "import qrae, qrae.browsecomp, sys; print([m for m in sys.modules if m.startswith(('langchain', 'llama_'))])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
