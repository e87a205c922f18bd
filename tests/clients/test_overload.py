"""A full server says so, and clients come again."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import openai
import pytest
from corpus import BEST, QUESTION, TEXTS
from openai import OpenAI
from server import MODEL, Server

import qrae


@pytest.fixture
def occupied(narrow_server: Server) -> Iterator[threading.Event]:
    """A stream holds the server's one place until the event is set."""
    let_go, began = threading.Event(), threading.Event()

    def hold() -> None:
        with OpenAI(base_url=narrow_server.v1, api_key=narrow_server.key) as client:
            stream = client.completions.create(
                model=MODEL, prompt="Once", max_tokens=2000, stream=True, extra_body={"ignore_eos": True}
            )
            for _ in stream:
                began.set()
                if let_go.is_set():
                    break
            stream.close()

    holder = threading.Thread(target=hold)
    holder.start()
    assert began.wait(30)
    yield let_go
    let_go.set()
    holder.join(30)
    narrow_server.wait_until_idle()


def test_more_than_fits_is_refused_with_a_time_to_come_again(narrow_server: Server, occupied: threading.Event) -> None:
    with OpenAI(base_url=narrow_server.v1, api_key=narrow_server.key, max_retries=0) as client:
        with pytest.raises(openai.RateLimitError) as caught:
            client.completions.create(model=MODEL, prompt="Hello", max_tokens=1)
        assert caught.value.response.headers["retry-after"] == "1"
        assert caught.value.code == "overloaded"
        assert client.models.list().data, "what needs no place is answered"
    with (
        qrae.Client(narrow_server.url, narrow_server.key, max_retries=0) as impatient,
        pytest.raises(qrae.QraeError) as refused,
    ):
        impatient.score(QUESTION, TEXTS)
    assert refused.value.status == 429
    assert not occupied.is_set()


def test_clients_that_wait_are_served(narrow_server: Server, occupied: threading.Event) -> None:
    timer = threading.Timer(0.5, occupied.set)
    timer.start()
    with qrae.Client(narrow_server.url, narrow_server.key) as client:
        assert client.score(QUESTION, TEXTS).ranked()[0].index == BEST
    assert occupied.is_set(), "it was refused first"
    timer.join()
