"""When a request is sent again, and after how long. Pure but for the jitter. Tests: `tests/test_retries.py`."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

RETRIED = frozenset({429, 503})
"""Too many requests, and not ready yet: the server did nothing, so that asking again is safe."""

LONGEST_WAIT = 60.0
"""Seconds. A server that asks for a longer pause is not waited for: the error tells the caller."""

_FIRST, _LAST = 0.5, 8.0


def delay(attempt: int, status: int | None, headers: Mapping[str, str]) -> float | None:
    """Seconds until the next try after the try `attempt` (from 0) failed, or None for no further try.

    `status` is None when no connection was made. `Retry-After` is honoured as it stands; without it the wait doubles
    from half a second to eight, less up to a quarter of it by chance, so that many clients do not come back at once.
    """
    if status is not None and status not in RETRIED:
        return None
    asked = retry_after(headers.get("retry-after"))
    if asked is not None:
        return asked if asked <= LONGEST_WAIT else None
    wait = min(_FIRST * 2.0**attempt, _LAST)
    return wait * (1 - random.random() / 4)


def retry_after(value: str | None) -> float | None:
    """Seconds that a `Retry-After` header asks for, written as a number or as a date; None if it says neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        seconds = (when - datetime.now(timezone.utc)).total_seconds()
    return max(seconds, 0.0) if seconds == seconds else None
