from __future__ import annotations

import asyncio

import pytest
from fake_server import FakeServer, error

from qrae import AsyncClient, Client, QraeError


def test_it_answers_as_the_sync_client_does() -> None:
    server = FakeServer()

    async def ask() -> tuple[object, ...]:
        async with AsyncClient("http://host/v1", "key", transport=server.transport) as client:
            await client.wait_until_ready()
            one = await client.score("tosk", ["tosk", "x"], explain=True)
            many = await client.score_many(["tosk", "x"], ["tosk", "x"])
            return one, many, await client.head_sets()

    with Client("http://host", "key", transport=server.transport) as client:
        client.wait_until_ready()
        one = client.score("tosk", ["tosk", "x"], explain=True)
        many = client.score_many(["tosk", "x"], ["tosk", "x"])
        sets = client.head_sets()
    sync, server.requests = server.requests, []
    assert asyncio.run(ask()) == (one, many, sets)
    assert [(r.method, r.url, r.content) for r in server.requests] == [(r.method, r.url, r.content) for r in sync]


def test_refusals_are_raised() -> None:
    async def ask() -> None:
        async with AsyncClient(transport=FakeServer(error(401, code="invalid_api_key")).transport) as client:
            await client.score("q", ["x"])

    with pytest.raises(QraeError) as caught:
        asyncio.run(ask())
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
