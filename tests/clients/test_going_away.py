"""Callers that go away: what they asked for ends, and its KV comes back. Read off /metrics."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from server import MODEL, Server

LONG = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 1900, "ignore_eos": True, "temperature": 0}
MUCH = [
    f"Chunk {i}. " + f"The ferry to Sandrey leaves at {i % 24} and the herring are in season. " * 12 for i in range(7)
]


def send(server: Server, path: str, body: object) -> socket.socket:
    """A request on a connection of its own, by hand: no client is in between that reads on or closes politely."""
    address = urlsplit(server.url)
    text = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {server.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    connection = socket.create_connection((address.hostname or "", address.port or 0), timeout=30)
    connection.sendall(head.encode() + text)
    return connection


def read_until(connection: socket.socket, what: bytes, times: int = 1) -> bytes:
    read = b""
    while read.count(what) < times:
        piece = connection.recv(4096)
        assert piece, f"the stream ended early: {read[-500:]!r}"
        read += piece
    return read


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(0.01)


def reset(connection: socket.socket) -> None:
    """Closes without a word, as a process that was killed on another machine."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    connection.close()


@pytest.mark.parametrize("close", [socket.socket.close, reset])
def test_a_stream_cut_in_the_middle_gives_its_kv_back(server: Server, close: Callable[[socket.socket], None]) -> None:
    server.wait_until_idle()
    aborted = server.metric("vllm:request_success_total", finished_reason="abort") if _counted(server) else 0
    connection = send(server, "/v1/completions", {**LONG, "stream": True})
    head = read_until(connection, b"data: ", times=5)
    assert head.startswith(b"HTTP/1.1 200")
    assert b"text/event-stream" in head
    wait_for(lambda: server.kv_in_use() > 0, "the stream holds KV")
    close(connection)
    server.wait_until_idle()
    assert server.metric("vllm:request_success_total", finished_reason="abort") == aborted + 1
    made = server.metric("vllm:generation_tokens_total")
    time.sleep(0.2)
    assert server.metric("vllm:generation_tokens_total") == made, "nothing is generated for nobody"


def _counted(server: Server) -> bool:
    try:
        server.metric("vllm:request_success_total", finished_reason="abort")
    except AssertionError:
        return False
    return True


def test_a_whole_answer_nobody_waits_for_is_not_made(server: Server) -> None:
    server.wait_until_idle()
    connection = send(server, "/v1/completions", LONG)
    wait_for(lambda: server.kv_in_use() > 0, "the request holds KV")
    connection.close()
    server.wait_until_idle(5)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/qrae/score", {"query": "When?", "chunks": MUCH, "orders": 8, "cache_salt": "cut"}),
        ("/v2/rerank", {"model": MODEL, "query": "When?", "documents": MUCH, "orders": 8, "cache_salt": "cut too"}),
    ],
)
def test_scores_nobody_waits_for_are_not_computed(server: Server, path: str, body: dict[str, object]) -> None:
    server.wait_until_idle()
    scored = server.metric("qrae_chunks_scored_total")
    connection = send(server, path, body)
    wait_for(lambda: server.kv_in_use() > 0, "the request holds KV")
    connection.close()
    server.wait_until_idle()
    assert server.metric("qrae_chunks_scored_total") == scored


def test_the_server_answers_after_all_that(server: Server) -> None:
    connection = send(server, "/v1/completions", {**LONG, "max_tokens": 3, "stream": True})
    assert read_until(connection, b"data: [DONE]").count(b"data: ") >= 3
    connection.close()
    server.wait_until_idle()
