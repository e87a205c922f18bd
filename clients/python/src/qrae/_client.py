"""The sync and the async client. They differ in how they wait alone: requests, answers and retries are shared.

Tests: `tests/test_client.py`, `tests/test_async_client.py`, `tests/test_retries.py`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, NoReturn, TypedDict, TypeVar

import httpx
from typing_extensions import Self, Unpack

from qrae import _errors, _gate, _retries, _types
from qrae._errors import QraeError
from qrae._gate import Gated, GateOptions
from qrae._types import ChunkInput, HeadSet, ManyScores, Scores

_Http = TypeVar("_Http", httpx.Client, httpx.AsyncClient)
_Answer = TypeVar("_Answer")

DEFAULT_URL = "http://127.0.0.1:8080"
DEFAULT_TIMEOUT = 600.0
"""Seconds: a long context takes minutes on a slow machine. Connecting has ten."""
_CONNECT_TIMEOUT = 10.0
_PROBE_TIMEOUT = 5.0
_PROBE_PAUSE = 0.25


class Options(TypedDict, total=False):
    """How chunks are scored. What is not given is the server's default."""

    model: str
    """Checked against the served model; another one is refused."""
    head_set: str
    """A head set's name; see `head_sets`."""
    heads: Sequence[str]
    """Heads in place of a set, such as `["L16H7"]`."""
    statistic: str
    control: str
    read: str
    orders: int
    """Scores in that many orders of the chunks, averaged: slower and better. 1 to 8."""
    max_tokens_per_chunk: int
    """Longer chunks are cut, and flagged `truncated`. Without it, what does not fit the model is refused."""
    explain: bool
    """Adds each token's response to the results."""
    cache_salt: str
    """Requests share cached prompts only with requests of the same salt."""


class _Base(Generic[_Http]):
    _http: _Http

    def __init__(self, base_url: str | None, api_key: str | None, model: str | None, max_retries: int) -> None:
        if max_retries < 0:
            raise ValueError(f"max_retries is {max_retries}, must be 0 or more")
        url = (base_url or os.environ.get("QRAE_BASE_URL") or DEFAULT_URL).rstrip("/")
        self.base_url = url.removesuffix("/v1")
        self.model = model
        self.max_retries = max_retries
        # the server's own variable may hold several keys
        key = api_key if api_key is not None else os.environ.get("QRAE_API_KEY", "").split(",")[0].strip()
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def _body(self, chunks: Sequence[ChunkInput], options: Options | GateOptions) -> dict[str, Any]:
        if isinstance(chunks, str):
            raise TypeError("chunks must be a list of chunks, not one string")
        body: dict[str, Any] = {"chunks": [c if isinstance(c, str) else dict(c) for c in chunks], **options}
        if self.model is not None:
            body.setdefault("model", self.model)
        return {name: value for name, value in body.items() if value is not None}

    def _url(self, path: str) -> str:
        return self.base_url + path

    def _delay(self, attempt: int, status: int | None, headers: Mapping[str, str]) -> float | None:
        return _retries.delay(attempt, status, headers) if attempt < self.max_retries else None

    def _not_ready(self, timeout: float) -> NoReturn:
        raise QraeError(f"{self.base_url} was not ready within {timeout:g} s; see its log")


def _timeout(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=min(seconds, _CONNECT_TIMEOUT))


def _read(response: httpx.Response, reader: Callable[[Mapping[str, Any], str | None], _Answer]) -> _Answer:
    if not response.is_success:
        raise _errors.of_response(response)
    request_id = response.headers.get("x-request-id")
    try:
        return reader(response.json(), request_id)
    except (KeyError, TypeError, ValueError) as e:
        what = f"{type(e).__name__}: {e}"
        raise QraeError(
            f"{response.url} answered something else than scores ({what}); is it a qrae server?",
            status=response.status_code,
            request_id=request_id,
        ) from e


def _sets(body: Mapping[str, Any], _: str | None) -> list[HeadSet]:
    return _types.head_sets(body)


class Client(_Base[httpx.Client]):
    """Scores chunks. Safe to share between threads; use it in a `with` block, or `close` it.

    Args:
        base_url: The server, with or without `/v1`; else `$QRAE_BASE_URL`, else the address `qrae serve` listens on.
        api_key: One of the server's keys; else `$QRAE_API_KEY`.
        model: Sent with every request; a server that serves another one refuses it.
        timeout: Seconds for one try.
        max_retries: Tries after the first, when the server is overloaded (429), not ready (503), or cannot be reached.
        transport: In place of the network, for tests.

    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        model: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        max_retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(base_url, api_key, model, max_retries)
        self._http = httpx.Client(headers=self._headers, timeout=_timeout(timeout), transport=transport)

    def score(self, query: str, chunks: Sequence[ChunkInput], **options: Unpack[Options]) -> Scores:
        """Scores chunks for one query. `options` are those of `Options`.

        Raises:
            QraeError: It was refused, or there was no answer.

        """
        body = {"query": query, **self._body(chunks, options)}
        return _read(self._send("POST", "/v1/qrae/score", body), _types.scores)

    def score_many(
        self, queries: Sequence[str], chunks: Sequence[ChunkInput], **options: Unpack[Options]
    ) -> ManyScores:
        """Scores the same chunks for several queries; the chunks are read once. Raises as `score` does."""
        body = {"queries": list(queries), **self._body(chunks, options)}
        return _read(self._send("POST", "/v1/qrae/score", body), _types.many_scores)

    def gate(self, query: str, chunks: Sequence[ChunkInput], **options: Unpack[GateOptions]) -> Gated:
        """Scores chunks for one query and says which to show, and which sentences of them. Raises as `score` does."""
        body = {"query": query, **self._body(chunks, options)}
        return _read(self._send("POST", "/v1/gate", body), _gate.gated)

    def head_sets(self) -> list[HeadSet]:
        """The head sets that fit the served model. Raises as `score` does."""
        return _read(self._send("GET", "/v1/head_sets"), _sets)

    def is_ready(self) -> bool:
        """Whether the server answers and its model is loaded."""
        try:
            return self._http.get(self._url("/health"), timeout=_PROBE_TIMEOUT).is_success
        except httpx.HTTPError:
            return False

    def wait_until_ready(self, timeout: float = 120.0) -> None:
        """Returns once the model is loaded.

        Raises:
            QraeError: It is not within `timeout` seconds.

        """
        end = time.monotonic() + timeout
        while not self.is_ready():
            if time.monotonic() > end:
                self._not_ready(timeout)
            time.sleep(_PROBE_PAUSE)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        attempt, url = 0, self._url(path)
        while True:
            try:
                response = self._http.request(method, url, json=body)
            except httpx.HTTPError as e:
                # only a connection that was never made is sure to have done nothing
                wait = self._delay(attempt, None, {}) if isinstance(e, httpx.ConnectError) else None
                if wait is None:
                    raise _errors.of_transport(e, self.base_url) from e
            else:
                wait = self._delay(attempt, response.status_code, response.headers)
                if wait is None:
                    return response
            time.sleep(wait)
            attempt += 1


class AsyncClient(_Base[httpx.AsyncClient]):
    """The same for asyncio; use it in an `async with` block, or `aclose` it. The arguments are those of `Client`."""

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        model: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        max_retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(base_url, api_key, model, max_retries)
        self._http = httpx.AsyncClient(headers=self._headers, timeout=_timeout(timeout), transport=transport)

    async def score(self, query: str, chunks: Sequence[ChunkInput], **options: Unpack[Options]) -> Scores:
        """As `Client.score`. A cancelled task ends the server's work, too."""
        body = {"query": query, **self._body(chunks, options)}
        return _read(await self._send("POST", "/v1/qrae/score", body), _types.scores)

    async def score_many(
        self, queries: Sequence[str], chunks: Sequence[ChunkInput], **options: Unpack[Options]
    ) -> ManyScores:
        """As `Client.score_many`."""
        body = {"queries": list(queries), **self._body(chunks, options)}
        return _read(await self._send("POST", "/v1/qrae/score", body), _types.many_scores)

    async def gate(self, query: str, chunks: Sequence[ChunkInput], **options: Unpack[GateOptions]) -> Gated:
        """As `Client.gate`."""
        body = {"query": query, **self._body(chunks, options)}
        return _read(await self._send("POST", "/v1/gate", body), _gate.gated)

    async def head_sets(self) -> list[HeadSet]:
        """As `Client.head_sets`."""
        return _read(await self._send("GET", "/v1/head_sets"), _sets)

    async def is_ready(self) -> bool:
        """As `Client.is_ready`."""
        try:
            return (await self._http.get(self._url("/health"), timeout=_PROBE_TIMEOUT)).is_success
        except httpx.HTTPError:
            return False

    async def wait_until_ready(self, timeout: float = 120.0) -> None:
        """As `Client.wait_until_ready`."""
        end = time.monotonic() + timeout
        while not await self.is_ready():
            if time.monotonic() > end:
                self._not_ready(timeout)
            await asyncio.sleep(_PROBE_PAUSE)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        attempt, url = 0, self._url(path)
        while True:
            try:
                response = await self._http.request(method, url, json=body)
            except httpx.HTTPError as e:
                wait = self._delay(attempt, None, {}) if isinstance(e, httpx.ConnectError) else None
                if wait is None:
                    raise _errors.of_transport(e, self.base_url) from e
            else:
                wait = self._delay(attempt, response.status_code, response.headers)
                if wait is None:
                    return response
            await asyncio.sleep(wait)
            attempt += 1
