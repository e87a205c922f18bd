"""A server without a model: scores are the share of a query's words that a chunk has."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx

HEADS = ["L1H2", "L3H0"]
METHOD = {"statistic": "scaled_sum", "control": "null_query", "read": "query_mean"}


class FakeServer:
    """Keeps what it was asked; `answers` are given first, in turn, in place of scores."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.requests: list[httpx.Request] = []
        self.answers = list(answers)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests if request.content]

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        routes: dict[str, Callable[[httpx.Request], httpx.Response]] = {
            "/health": lambda _: httpx.Response(200, json={"status": "ok"}),
            "/v1/head_sets": _head_sets,
            "/v1/qrae/score": _score,
        }
        return routes[request.url.path](request)


def error(status: int, **fields: Any) -> httpx.Response:  # noqa: ANN401
    """An answer as the server words it; `headers` among the fields are its headers."""
    headers = fields.pop("headers", {})
    body = {"error": {"message": "no", "type": "server_error", "param": None, "code": None, **fields}}
    return httpx.Response(status, json=body, headers=headers)


def _words(text: str) -> set[str]:
    return set(text.lower().replace(".", " ").replace("?", " ").split())


def _score(request: httpx.Request) -> httpx.Response:
    body = json.loads(request.content)
    chunks = [c if isinstance(c, dict) else {"text": c} for c in body["chunks"]]

    def results(query: str) -> list[dict[str, Any]]:
        texts = [f"{c.get('title', '')} {c['text']}" for c in chunks]
        values = [len(_words(query) & _words(t)) / len(_words(query)) for t in texts]
        order = sorted(range(len(values)), key=lambda i: -values[i])
        return [_result(i, c, values[i], order.index(i) + 1, body.get("explain")) for i, c in enumerate(chunks)]

    answer: dict[str, Any] = {
        "id": "score-1",
        "created": 1700000000,
        "object": "qrae.score",
        "model": body.get("model", "tiny"),
        "prompt_hash": "sha256:00",
        "head_set": "tiny@0123456789ab",
        "heads": HEADS,
        "method": METHOD,
        "orders": body.get("orders", 1),
        "usage": {
            "prompt_tokens": 90,
            "completion_tokens": 0,
            "total_tokens": 90,
            "computed_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": 10, "shared_tokens": 30},
        },
        "timings": {"tokenize_ms": 0.1, "queue_ms": 0.0, "prefill_ms": 12.5, "score_ms": 0.2},
        "a field of tomorrow": [1],
    }
    if "queries" in body:
        answer["queries"] = [{"index": i, "results": results(q)} for i, q in enumerate(body["queries"])]
    else:
        answer["results"] = results(body["query"])
    return httpx.Response(200, json=answer, headers={"x-request-id": "r-1"})


def _result(index: int, chunk: dict[str, Any], score: float, rank: int, explain: object) -> dict[str, Any]:
    result = {
        "index": index,
        "score": score,
        "rank": rank,
        "tokens": 9,
        "tokens_scored": 8,
        "flags": {"empty": False, "single_token": False, "no_response": score == 0, "truncated": False},
        "heads": [{"head": head, "score": score, "mass": 0.5} for head in HEADS],
    }
    if "id" in chunk:
        result["id"] = chunk["id"]
    if explain:
        token = {"start": 0, "end": 3, "in_title": False, "response": 0.25, "per_head": [0.5, 0.0]}
        result["explain"] = [token]
    return result


def _head_sets(_: httpx.Request) -> httpx.Response:
    entry = {
        "id": "tiny",
        "object": "qrae.head_set",
        "label": "tiny@0123456789ab",
        "hash": "sha256:0123456789ab",
        "default": True,
        "heads": HEADS,
        "method": METHOD,
        "standing": "bound",
        "provenance": {"n": 60},
    }
    return httpx.Response(200, json={"object": "list", "model": "tiny", "data": [entry]})
