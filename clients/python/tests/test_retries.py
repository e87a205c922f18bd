from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import httpx
import pytest
from fake_server import FakeServer, error

from qrae import AsyncClient, Client, QraeError
from qrae._retries import LONGEST_WAIT, delay, retry_after


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(time, "sleep", waits.append)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    return waits


def test_overload_is_tried_again_after_what_the_server_asks_for(slept: list[float]) -> None:
    server = FakeServer(error(429, headers={"Retry-After": "2"}), error(503, headers={"Retry-After": "3.5"}))
    with Client(transport=server.transport) as client:
        assert client.score("a", ["a"]).results[0].score == 1.0
    assert slept == [2.0, 3.5]
    assert server.bodies[0] == server.bodies[2]


def test_the_async_client_does_the_same(slept: list[float]) -> None:
    server = FakeServer(error(429, headers={"Retry-After": "2"}), httpx.ConnectError("refused"))

    async def score() -> float:
        async with AsyncClient(transport=server.transport) as client:
            return (await client.score("a", ["a"])).results[0].score

    assert asyncio.run(score()) == 1.0
    assert slept[0] == 2.0
    assert len(slept) == 2


def test_tries_end(slept: list[float]) -> None:
    server = FakeServer(*[error(429, message="full", code="overloaded") for _ in range(9)])
    with Client(transport=server.transport, max_retries=2) as client, pytest.raises(QraeError, match="full") as caught:
        client.score("a", ["a"])
    assert (caught.value.status, caught.value.code) == (429, "overloaded")
    assert len(server.requests) == 3
    assert len(slept) == 2


@pytest.mark.parametrize("status", [400, 401, 404, 413, 500, 502])
def test_other_failures_are_final(status: int, slept: list[float]) -> None:
    server = FakeServer(error(status, headers={"Retry-After": "1"}))
    with Client(transport=server.transport) as client, pytest.raises(QraeError):
        client.score("a", ["a"])
    assert len(server.requests) == 1
    assert slept == []


def test_what_may_have_reached_the_server_is_not_sent_again(slept: list[float]) -> None:
    for failure in (httpx.ReadTimeout("slow"), httpx.ReadError("cut"), httpx.WriteError("cut")):
        server = FakeServer(failure)
        with Client(transport=server.transport) as client, pytest.raises(QraeError):
            client.score("a", ["a"])
        assert len(server.requests) == 1
    assert slept == []


def test_waiting_for_the_model(slept: list[float]) -> None:
    server = FakeServer(httpx.ConnectError("refused"), error(503, code="loading"))
    with Client(transport=server.transport) as client:
        client.wait_until_ready()
        assert len(slept) == 2
        server.answers = [error(503)]
        with pytest.raises(QraeError, match="not ready within -1 s"):
            client.wait_until_ready(timeout=-1)


def test_waits_double_up_to_a_bound_and_differ() -> None:
    waits = [[delay(attempt, 429, {}) or 0.0 for _ in range(50)] for attempt in range(8)]
    for attempt, some in enumerate(waits):
        most = min(0.5 * 2**attempt, 8)
        assert all(most * 0.75 <= wait <= most for wait in some)
        assert len(set(some)) > 1
    assert delay(0, None, {}) is not None
    assert delay(0, 500, {}) is None


def test_a_server_that_asks_for_too_long_is_not_waited_for() -> None:
    assert delay(0, 429, {"retry-after": str(LONGEST_WAIT)}) == LONGEST_WAIT
    assert delay(0, 429, {"retry-after": str(LONGEST_WAIT + 1)}) is None


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after("7") == 7.0
    assert retry_after("-1") == 0.0
    assert retry_after("nan") is None
    assert retry_after("soon") is None
    assert retry_after(None) is None
    then = datetime.now(timezone.utc) + timedelta(seconds=20)
    assert 15 < (retry_after(format_datetime(then, usegmt=True)) or 0) <= 20
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


def test_a_negative_number_of_retries_is_refused() -> None:
    with pytest.raises(ValueError, match="max_retries"):
        Client(max_retries=-1)
