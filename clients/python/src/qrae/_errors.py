"""The one exception, and how an answer or a failed connection becomes it. Tests: `tests/test_errors.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

_MOST_QUOTED = 300
"""Characters of an answer that is not JSON which a message quotes."""


class QraeError(Exception):
    """A request that was not answered as asked.

    Attributes:
        message: What is wrong and what to do, in the server's words where it answered.
        status: The HTTP status, or None when there was no answer (refused connection, timeout).
        param: The path of the wrong field in the request, such as `chunks[3].text`.
        type: The server's kind of error, such as `invalid_request_error`.
        code: A word to tell errors apart, such as `context_length_exceeded`.
        request_id: What the server's log calls the request.

    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        param: str | None = None,
        type: str | None = None,
        code: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.type = type
        self.code = code
        self.request_id = request_id

    def __str__(self) -> str:
        facts = [str(self.status)] if self.status is not None else []
        if self.request_id:
            facts.append(f"request {self.request_id}")
        return f"{self.message} ({', '.join(facts)})" if facts else self.message


def of_response(response: httpx.Response) -> QraeError:
    """Reads the error out of an answer, whatever a proxy in between made of it."""
    request_id = response.headers.get("x-request-id")
    error = _error_object(response)
    if error is None:
        text = " ".join(response.text.split())[:_MOST_QUOTED]
        said = f": {text}" if text else ""
        message = f"the server answered {response.status_code} {response.reason_phrase}{said}"
        return QraeError(message, status=response.status_code, request_id=request_id)
    return QraeError(
        str(error.get("message") or f"the server answered {response.status_code} without a reason"),
        status=response.status_code,
        param=_text(error.get("param")),
        type=_text(error.get("type")),
        code=_text(error.get("code")),
        request_id=request_id,
    )


def of_transport(error: httpx.HTTPError, url: str) -> QraeError:
    """Names a request that got no answer."""
    if isinstance(error, httpx.ConnectError):
        return QraeError(f"no server answers at {url}: {error}; start one with `qrae serve`, or give its base_url")
    if isinstance(error, httpx.TimeoutException):
        return QraeError(f"{url} did not answer in time; give the client a longer timeout, or send fewer chunks")
    return QraeError(f"the connection to {url} failed: {error or type(error).__name__}")


def _error_object(response: httpx.Response) -> Mapping[str, Any] | None:
    try:
        body = response.json()
    except ValueError:
        return None
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
