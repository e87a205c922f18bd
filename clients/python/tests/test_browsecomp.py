from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from fake_server import FakeServer

from qrae import Client
from qrae.browsecomp import Hit, QraeSearcher

QUERY = "where was tosk born"
HITS: list[Hit] = [
    {"docid": "a", "score": 9.0, "text": "Herring feast\nherring in june"},
    {"docid": "b", "score": 8.0, "text": "tosk was born", "title": "Tosk"},
    {"docid": "c", "score": 7.0, "text": "---\ntitle: On lenses\ndate: 1900\n---\nlenses bend"},
    {"docid": "d", "score": 6.0, "text": "where was tosk born", "url": "u"},
    {"docid": "e", "text": "born"},
]


class Inner:
    search_type = "BM25"

    def __init__(self, hits: Sequence[Hit] = HITS) -> None:
        self.hits = hits
        self.asked: list[int] = []

    def search(self, query: str, query_id: str | None = None, k: int = 10) -> list[Hit]:
        assert query
        assert query_id is None
        self.asked.append(k)
        return list(self.hits[:k])

    def get_document(self, docid: str) -> Hit | None:
        return next((h for h in self.hits if h["docid"] == docid), None)


def searcher(inner: Inner, server: FakeServer | None = None, **options: Any) -> QraeSearcher:  # noqa: ANN401
    return QraeSearcher(inner, Client(transport=(server or FakeServer()).transport), **options)


def test_the_best_half_has_text_and_the_others_are_stubs() -> None:
    hits = searcher(Inner()).search(QUERY, 5)
    assert [h["docid"] for h in hits] == ["d", "b", "e", "a", "c"]
    assert [h["score"] for h in hits] == [1.0, 0.75, 0.25, 0.0, 0.0]
    assert [h["withheld"] for h in hits] == [False, False, False, True, True]
    assert hits[0] == {**HITS[3], "score": 1.0, "withheld": False}
    assert hits[1]["text"] == "tosk was born"
    assert hits[3]["text"].startswith("Herring feast [withheld")
    assert hits[4]["text"].startswith("On lenses [withheld")
    assert "june" not in hits[3]["text"]


def test_keep_and_threshold() -> None:
    def full(**options: Any) -> list[str]:  # noqa: ANN401
        return [h["docid"] for h in searcher(Inner(), **options).search(QUERY, 5) if not h["withheld"]]

    assert full(keep=1) == ["d"]
    assert full(keep=9) == ["d", "b", "e", "a", "c"]
    assert full(keep=9, threshold=0.5) == ["d", "b"]
    with pytest.raises(ValueError, match="top_n"):
        full(keep=0)


def test_more_candidates_than_are_returned() -> None:
    inner = Inner()
    assert [h["docid"] for h in searcher(inner, first_stage_k=5).search(QUERY, 2)] == ["d", "b"]
    assert searcher(inner).search(QUERY, k=1)[0]["docid"] == "a"
    assert searcher(inner, first_stage_k=2).search(QUERY)[0]["docid"] == "d"
    assert inner.asked == [5, 1, 10]


def test_hits_of_the_inner_searcher_are_not_changed() -> None:
    before = [dict(h) for h in HITS]
    searcher(Inner(), keep=1).search(QUERY, 5)
    assert before == HITS


def test_snippets_serve_as_text() -> None:
    hits: list[Hit] = [{"docid": "a", "snippet": "tosk"}, {"docid": "b", "snippet": "x", "text": "herring in june"}]
    out = searcher(Inner(hits), keep=1).search(QUERY)
    assert out[0]["snippet"] == "tosk"
    assert "snippet" not in out[1]
    assert out[1]["text"].startswith("herring in june [withheld")
    with pytest.raises(ValueError, match="neither"):
        searcher(Inner([{"docid": "a"}])).search(QUERY)


def test_a_long_first_line_is_cut_between_words() -> None:
    hits: list[Hit] = [
        {"docid": "a", "text": "word " * 100},
        {"docid": "b", "text": "tosk"},
        {"docid": "c", "text": ""},
    ]
    out = {h["docid"]: h["text"] for h in searcher(Inner(hits), keep=1).search(QUERY)}
    assert out["a"].split(" [")[0].endswith("word …")
    assert len(out["a"]) < 220
    assert out["c"].startswith(" [withheld")


def test_nothing_found_asks_nothing() -> None:
    server = FakeServer()
    assert searcher(Inner([]), server).search(QUERY) == []
    assert server.requests == []


def test_requests_cut_long_hits_unless_told_otherwise() -> None:
    server = FakeServer()
    searcher(Inner(), server).search(QUERY)
    searcher(Inner(), server, max_tokens_per_chunk=None, options={"orders": 2}).search(QUERY)
    assert [(b.get("max_tokens_per_chunk"), b.get("orders")) for b in server.bodies] == [(512, None), (None, 2)]
    assert server.bodies[0]["chunks"][1] == {"title": "Tosk", "text": "tosk was born"}


def test_documents_and_names_come_from_the_inner_searcher() -> None:
    wrapped = searcher(Inner())
    assert wrapped.get_document("b") == HITS[1]
    assert wrapped.get_document("z") is None
    assert wrapped.search_type == "BM25+QRAE"
    assert "top-5" in wrapped.search_description(5)
    batch = wrapped.retrieve_batch([QUERY, "herring"], ["q1", "q2"], 5)
    assert [hits[0]["docid"] for hits in batch.values()] == ["d", "a"]
    assert list(batch) == ["q1", "q2"]
