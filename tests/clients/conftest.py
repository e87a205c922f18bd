"""Servers that the tests share, and the order that the native API gives the corpus."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from corpus import QUESTION, TEXTS
from server import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with its defaults."""
    with Server(tmp_path_factory.mktemp("server") / "log") as server:
        yield server


@pytest.fixture(scope="session")
def narrow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that takes one request at a time."""
    with Server(tmp_path_factory.mktemp("narrow") / "log", "--max-concurrent-requests", "1") as server:
        yield server


@pytest.fixture(scope="session")
def native_scores(server: Server) -> list[float]:
    """Scores of the corpus' texts, in its order."""
    body = {"query": QUESTION, "chunks": TEXTS}
    answer = httpx.post(f"{server.v1}/qrae/score", json=body, headers=server.headers, timeout=60)
    scores = [result["score"] for result in answer.raise_for_status().json()["results"]]
    assert len(set(scores)) == len(scores), "the order of the corpus is to be clear"
    return scores


@pytest.fixture(scope="session")
def native_order(native_scores: list[float]) -> list[int]:
    """Indices of the corpus' texts, the best first."""
    return sorted(range(len(TEXTS)), key=lambda i: -native_scores[i])
