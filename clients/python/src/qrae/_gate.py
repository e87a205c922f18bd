"""What `Client.gate` takes and answers: which chunks a context should take, and which of their sentences.

Tests: `tests/test_gate.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from qrae import _types
from qrae._types import Flags, Usage

Admission = Literal["full", "span", "withhold"]


class GateOptions(TypedDict, total=False):
    """How chunks are scored and gated. What is not given is the server's default: the better half, in spans."""

    top_k: int
    """Admits the best so many. One of this, `threshold` and `budget_tokens`."""
    threshold: float
    """Admits every chunk of at least this score."""
    budget_tokens: int
    """Admits, from the best down, what still fits into so many tokens; titles count first."""
    full: int
    """Shows so many of the best admitted chunks whole."""
    share: float
    """The share of a chunk's response that its spans hold, above 0 and at most 1."""
    model: str
    head_set: str
    heads: list[str]
    statistic: str
    control: str
    read: str
    orders: int
    max_tokens_per_chunk: int
    cache_salt: str


@dataclass(frozen=True)
class KeptSpan:
    """Sentences of a chunk to show."""

    start: int
    """In characters of the chunk's text."""
    end: int
    text: str


@dataclass(frozen=True)
class GatedChunk:
    """What becomes of one chunk."""

    index: int
    """Its place in the request, from 0."""
    id: str | int | None
    title: str | None
    """Shown whatever the admission is."""
    admission: Admission
    text: str
    """The spans' texts, joined; empty when it is withheld."""
    spans: tuple[KeptSpan, ...]
    score: float
    rank: int
    tokens: int
    tokens_shown: int
    flags: Flags


@dataclass(frozen=True)
class Gated:
    """Which chunks to show, and which sentences of them."""

    id: str
    model: str
    head_set: str
    results: tuple[GatedChunk, ...]
    """In the order of the request."""
    tokens: int
    """Of all chunks."""
    tokens_shown: int
    usage: Usage
    request_id: str | None

    def admitted(self) -> list[GatedChunk]:
        """Those to show, in the order of the request."""
        return [result for result in self.results if result.admission != "withhold"]


def gated(body: Mapping[str, Any], request_id: str | None) -> Gated:
    """Reads the answer.

    Raises:
        KeyError, TypeError, ValueError: It is not one.

    """
    return Gated(
        id=str(body["id"]),
        model=str(body["model"]),
        head_set=str(body["head_set"]),
        results=tuple(sorted(map(_result, body["results"]), key=lambda result: result.index)),
        tokens=int(body["tokens"]["all"]),
        tokens_shown=int(body["tokens"]["shown"]),
        usage=_types.usage(body["usage"]),
        request_id=request_id,
    )


def _result(body: Mapping[str, Any]) -> GatedChunk:
    return GatedChunk(
        index=int(body["index"]),
        id=body.get("id"),
        title=body.get("title"),
        admission=_admission(body["admission"]),
        text=str(body["text"]),
        spans=tuple(KeptSpan(int(s["start"]), int(s["end"]), str(s["text"])) for s in body["spans"]),
        score=float(body["score"]),
        rank=int(body["rank"]),
        tokens=int(body["tokens"]),
        tokens_shown=int(body["tokens_shown"]),
        flags=_types.flags(body["flags"]),
    )


def _admission(name: str) -> Admission:
    match name:
        case "full" | "span" | "withhold":
            return name
    raise ValueError(f"{name!r} is no admission")
