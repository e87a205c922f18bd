from __future__ import annotations

import asyncio

import httpx
import pytest
from fake_server import FakeServer

from qrae import AsyncClient, Client, QraeError

FLAGS = {"empty": False, "single_token": False, "no_response": False, "truncated": False}
RESULTS = [
    {
        "index": 1, "id": 7, "title": "Tosk", "admission": "span", "text": "Born there.", "score": 0.5, "rank": 1,
        "spans": [{"start": 4, "end": 15, "text": "Born there."}], "tokens": 30, "tokens_shown": 6, "flags": FLAGS,
    },
    {
        "index": 0, "admission": "withhold", "text": "", "spans": [], "score": 0.0, "rank": 2,
        "tokens": 9, "tokens_shown": 0, "flags": {**FLAGS, "no_response": True},
    },
]  # fmt: skip
ANSWER = {
    "id": "gate-1",
    "model": "tiny",
    "head_set": "tiny@0123456789ab",
    "results": RESULTS,
    "tokens": {"all": 39, "shown": 6},
    "usage": {
        "prompt_tokens": 90,
        "computed_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 10, "shared_tokens": 30},
    },
}


def test_what_to_show_is_typed() -> None:
    server = FakeServer(httpx.Response(200, json=ANSWER, headers={"x-request-id": "r-2"}))
    with Client("http://host", transport=server.transport) as client:
        gated = client.gate("where", ["a", {"id": 7, "title": "Tosk", "text": "He. Born there."}], top_k=1, share=0.9)
    assert server.bodies == [
        {
            "query": "where",
            "chunks": ["a", {"id": 7, "title": "Tosk", "text": "He. Born there."}],
            "top_k": 1,
            "share": 0.9,
        }
    ]
    withheld, kept = gated.results
    assert (withheld.admission, withheld.text, withheld.spans, withheld.flags.no_response) == ("withhold", "", (), True)
    assert (kept.id, kept.title, kept.spans[0].start, kept.spans[0].text) == (7, "Tosk", 4, "Born there.")
    assert gated.admitted() == [kept]
    assert (gated.tokens, gated.tokens_shown, gated.usage.cached_tokens, gated.request_id) == (39, 6, 10, "r-2")


def test_the_async_client_asks_the_same() -> None:
    server = FakeServer(httpx.Response(200, json=ANSWER))

    async def ask() -> None:
        async with AsyncClient("http://host", transport=server.transport) as client:
            assert len((await client.gate("q", ["a", "b"], budget_tokens=6)).results) == 2

    asyncio.run(ask())
    assert server.bodies[0]["budget_tokens"] == 6


def test_another_admission_is_not_made_up() -> None:
    results = [{**RESULTS[1], "admission": "perhaps"}]
    server = FakeServer(httpx.Response(200, json={**ANSWER, "results": results}))
    with Client("http://host", transport=server.transport) as client, pytest.raises(QraeError, match="perhaps"):
        client.gate("q", ["a"])
