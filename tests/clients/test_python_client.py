"""The client in clients/python, its adapters and its examples, on a real server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus import BEST, QUESTION, TEXTS
from server import MODEL, Server

from qrae import AsyncClient, Chunk, Client, QraeError

EXAMPLES = Path(__file__).resolve().parents[2] / "clients/python/examples"


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with Client(server.v1, server.key, model=MODEL) as client:
        yield client


def test_scores(client: Client, native_scores: list[float]) -> None:
    chunks = [Chunk(id=f"c{i}", text=text) for i, text in enumerate(TEXTS)]
    scores = client.score(QUESTION, chunks, explain=True)
    assert [r.score for r in scores.results] == native_scores
    assert [r.id for r in scores.results] == [c["id"] for c in chunks]
    assert scores.ranked()[0].index == BEST
    assert sorted(r.rank for r in scores.results) == [1, 2, 3, 4, 5]
    assert all(0 <= r.score <= 1 and r.tokens_scored > 1 for r in scores.results)
    assert all([h.head for h in r.heads] == list(scores.heads) for r in scores.results)
    usage = scores.usage
    assert usage.prompt_tokens == usage.computed_tokens + usage.cached_tokens + usage.shared_tokens
    assert (scores.model, bool(scores.request_id)) == (MODEL, True)
    for text, result in zip(TEXTS, scores.results, strict=True):
        assert result.explain is not None
        assert "".join(text[t.start : t.end] for t in result.explain) == text
        assert all(len(t.per_head) == len(scores.heads) for t in result.explain)


def test_many_queries_and_few_tokens(client: Client, native_scores: list[float]) -> None:
    many = client.score_many([QUESTION, "When does the ferry leave?"], TEXTS)
    assert len(many.queries) == 2
    assert [r.score for r in many.queries[0]] == native_scores
    assert min(many.queries[1], key=lambda r: r.rank).index == 3
    cut = client.score(QUESTION, TEXTS, max_tokens_per_chunk=4)
    assert all(r.flags.truncated and r.tokens_scored == 4 < r.tokens for r in cut.results)


def test_gate(client: Client, native_scores: list[float]) -> None:
    gated = client.gate(QUESTION, TEXTS, top_k=2, full=1)
    assert [r.score for r in gated.results] == native_scores
    admitted = gated.admitted()
    assert (len(admitted), min(admitted, key=lambda r: r.rank).index) == (2, BEST)
    assert gated.results[BEST].admission == "full"
    assert all(TEXTS[r.index][s.start : s.end] == s.text for r in admitted for s in r.spans)
    assert gated.tokens_shown == sum(r.tokens_shown for r in gated.results) <= gated.tokens
    with pytest.raises(QraeError) as refused:
        client.gate(QUESTION, TEXTS, top_k=1, threshold=0.5)
    assert (refused.value.status, refused.value.param) == (400, "top_k")


def test_no_chunks_and_empty_chunks(client: Client) -> None:
    assert client.score(QUESTION, []).results == ()
    empty, text = client.score(QUESTION, ["", TEXTS[BEST]]).results
    assert empty.flags.empty
    assert (empty.score, text.rank) == (0.0, 1)


def test_async_requests_get_what_one_gets(server: Server, native_scores: list[float]) -> None:
    async def ask() -> list[list[float]]:
        async with AsyncClient(server.url, server.key) as client:
            answers = await asyncio.gather(*(client.score(QUESTION, TEXTS) for _ in range(6)))
            return [[r.score for r in answer.results] for answer in answers]

    assert asyncio.run(ask()) == [native_scores] * 6


def test_head_sets(client: Client) -> None:
    (default,) = [s for s in client.head_sets() if s.default]
    assert client.score(QUESTION, TEXTS).head_set == default.label
    custom = client.score(QUESTION, TEXTS, heads=default.heads[:2], statistic="sum")
    assert custom.heads == default.heads[:2]
    assert custom.method.statistic == "sum"


def test_refusals(server: Server, client: Client) -> None:
    with pytest.raises(QraeError) as caught:
        client.score(QUESTION, ["fine", "word " * 20_000])
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
    assert caught.value.request_id
    with pytest.raises(QraeError) as field:
        client.score(QUESTION, TEXTS, statistic="mean")
    assert (field.value.status, field.value.param) == (400, "statistic")
    with Client(server.url, "wrong") as stranger, pytest.raises(QraeError) as closed:
        stranger.score(QUESTION, TEXTS)
    assert closed.value.status == 401
    with Client(server.url, server.key, model="other") as other, pytest.raises(QraeError) as missing:
        other.score(QUESTION, TEXTS)
    assert (missing.value.status, missing.value.code) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("example", "lines", "words"),
    [
        ("score.py", 7, "1  0."),
        ("concurrent_scores.py", 3, "Mirela Tosk ("),
        ("compress.py", 2, "Mirela Tosk: "),
        ("postprocess.py", 2, "Mirela Tosk: "),
        ("search.py", 4, "[withheld: "),
    ],
)
def test_examples(server: Server, example: str, lines: int, words: str) -> None:
    environment = {**os.environ, "QRAE_BASE_URL": server.url, "QRAE_API_KEY": server.key}
    command = [sys.executable, str(EXAMPLES / example)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == lines
    assert words in done.stdout
