"""What is sent and what comes back, typed. Unknown fields of answers are ignored, so that servers may add some.

Tests: `tests/test_client.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict


class _Text(TypedDict):
    text: str


class Chunk(_Text, total=False):
    """One retrieved chunk; a plain string stands for one with a text alone.

    The model reads `title` and `url` before the text. `id` comes back in the result and is not read.
    """

    id: str | int
    title: str
    url: str


ChunkInput = str | Chunk


@dataclass(frozen=True)
class HeadScore:
    """What one attention head says about a chunk."""

    head: str
    """Such as `L16H7`: layer and head, from zero."""
    score: float
    mass: float
    """What the question adds to the head's attention on the chunk, summed over its tokens."""


@dataclass(frozen=True)
class Flags:
    """Why a score may mean little."""

    empty: bool
    single_token: bool
    no_response: bool
    truncated: bool
    """Only the first `max_tokens_per_chunk` tokens were read."""


@dataclass(frozen=True)
class TokenResponse:
    """What the question does to one token of a chunk."""

    start: int
    """In characters of the chunk's text."""
    end: int
    in_title: bool
    """The token lies in the title alone; `start` and `end` are then 0."""
    response: float
    per_head: tuple[float, ...]
    """In the order of the answer's `heads`."""


@dataclass(frozen=True)
class ChunkScore:
    """A chunk's score for one query. Scores compare the chunks of one request; they are no absolute measure."""

    index: int
    """Its place in the request, from 0."""
    id: str | int | None
    score: float
    """More is better. In [0, 1], but for a scaled sum, which may be more."""
    rank: int
    """From 1; no two chunks of a query share one."""
    tokens: int
    """Of the whole chunk."""
    tokens_scored: int
    """Those that were read: fewer where the chunk was cut."""
    flags: Flags
    heads: tuple[HeadScore, ...]
    explain: tuple[TokenResponse, ...] | None
    """Per token, when it was asked for."""


@dataclass(frozen=True)
class Method:
    """How scores were made of attention."""

    statistic: str
    control: str
    read: str


@dataclass(frozen=True)
class Usage:
    """Tokens of a request: all of them, and what of them was computed, in the prefix cache, or read once for many."""

    prompt_tokens: int
    computed_tokens: int
    cached_tokens: int
    shared_tokens: int


@dataclass(frozen=True)
class Timings:
    """Milliseconds."""

    tokenize_ms: float
    queue_ms: float
    prefill_ms: float
    score_ms: float


@dataclass(frozen=True)
class _Answer:
    id: str
    created: int
    model: str
    prompt_hash: str
    head_set: str
    """With its hash: two answers with the same one were scored the same way."""
    heads: tuple[str, ...]
    method: Method
    orders: int
    usage: Usage
    timings: Timings
    request_id: str | None


@dataclass(frozen=True)
class Scores(_Answer):
    """The chunks' scores for one query."""

    results: tuple[ChunkScore, ...]
    """In the order of the request."""

    def ranked(self) -> list[ChunkScore]:
        """The best first."""
        return sorted(self.results, key=lambda result: result.rank)


@dataclass(frozen=True)
class ManyScores(_Answer):
    """The same chunks' scores for each of several queries."""

    queries: tuple[tuple[ChunkScore, ...], ...]
    """For each query, the results in the order of the chunks."""


@dataclass(frozen=True)
class HeadSet:
    """A head set that fits the served model."""

    id: str
    label: str
    hash: str
    default: bool
    heads: tuple[str, ...]
    method: Method
    standing: str
    provenance: Mapping[str, Any]
    """The data and the criterion that the heads were chosen by, and what they reached."""


def scores(body: Mapping[str, Any], request_id: str | None) -> Scores:
    """Reads the answer to one query.

    Raises:
        KeyError, TypeError, ValueError: It is not one.

    """
    return Scores(**_answer(body, request_id), results=_results(body["results"]))


def many_scores(body: Mapping[str, Any], request_id: str | None) -> ManyScores:
    """Reads the answer to a list of queries; raises as `scores` does."""
    ordered = sorted(body["queries"], key=lambda query: int(query["index"]))
    return ManyScores(**_answer(body, request_id), queries=tuple(_results(q["results"]) for q in ordered))


def head_sets(body: Mapping[str, Any]) -> list[HeadSet]:
    """Reads the list of head sets; raises as `scores` does."""
    return [
        HeadSet(
            id=str(entry["id"]),
            label=str(entry["label"]),
            hash=str(entry["hash"]),
            default=bool(entry["default"]),
            heads=tuple(map(str, entry["heads"])),
            method=_method(entry["method"]),
            standing=str(entry["standing"]),
            provenance=dict(entry["provenance"] or {}),
        )
        for entry in body["data"]
    ]


def usage(body: Mapping[str, Any]) -> Usage:
    """Reads the tokens of a request; raises as `scores` does."""
    details = body["prompt_tokens_details"]
    return Usage(
        prompt_tokens=int(body["prompt_tokens"]),
        computed_tokens=int(body["computed_tokens"]),
        cached_tokens=int(details["cached_tokens"]),
        shared_tokens=int(details["shared_tokens"]),
    )


def flags(body: Mapping[str, Any]) -> Flags:
    """Reads a chunk's flags; raises as `scores` does."""
    return Flags(
        empty=bool(body["empty"]),
        single_token=bool(body["single_token"]),
        no_response=bool(body["no_response"]),
        truncated=bool(body["truncated"]),
    )


def _answer(body: Mapping[str, Any], request_id: str | None) -> dict[str, Any]:
    timings = body["timings"]
    return {
        "id": str(body["id"]),
        "created": int(body["created"]),
        "model": str(body["model"]),
        "prompt_hash": str(body["prompt_hash"]),
        "head_set": str(body["head_set"]),
        "heads": tuple(map(str, body["heads"])),
        "method": _method(body["method"]),
        "orders": int(body["orders"]),
        "usage": usage(body["usage"]),
        "timings": Timings(
            tokenize_ms=float(timings["tokenize_ms"]),
            queue_ms=float(timings["queue_ms"]),
            prefill_ms=float(timings["prefill_ms"]),
            score_ms=float(timings["score_ms"]),
        ),
        "request_id": request_id,
    }


def _method(body: Mapping[str, Any]) -> Method:
    return Method(statistic=str(body["statistic"]), control=str(body["control"]), read=str(body["read"]))


def _results(results: list[Mapping[str, Any]]) -> tuple[ChunkScore, ...]:
    return tuple(sorted(map(_result, results), key=lambda result: result.index))


def _result(body: Mapping[str, Any]) -> ChunkScore:
    explain = body.get("explain")
    return ChunkScore(
        index=int(body["index"]),
        id=body.get("id"),
        score=float(body["score"]),
        rank=int(body["rank"]),
        tokens=int(body["tokens"]),
        tokens_scored=int(body["tokens_scored"]),
        flags=flags(body["flags"]),
        heads=tuple(HeadScore(str(h["head"]), float(h["score"]), float(h["mass"])) for h in body["heads"]),
        explain=None if explain is None else tuple(map(_token, explain)),
    )


def _token(body: Mapping[str, Any]) -> TokenResponse:
    return TokenResponse(
        start=int(body["start"]),
        end=int(body["end"]),
        in_title=bool(body["in_title"]),
        response=float(body["response"]),
        per_head=tuple(map(float, body["per_head"])),
    )
