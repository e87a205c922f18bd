"""What the adapters share: from an item to a chunk, from scores to what is kept. Tests: `tests/test_adapters.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from qrae._client import Options
from qrae._types import Chunk, ChunkScore


def check(top_n: int | None, threshold: float | None) -> None:
    """Refuses bounds that make no sense.

    Raises:
        ValueError: `top_n` is below 1, or `threshold` is not in [0, 1].

    """
    if top_n is not None and top_n < 1:
        raise ValueError(f"top_n is {top_n}, must be at least 1, or None for all")
    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"threshold is {threshold}, must be 0 to 1, or None for none")


def keep(ranked: Sequence[ChunkScore], top_n: int | None, threshold: float | None) -> list[ChunkScore]:
    """The first `top_n` of `ranked` whose score is at least `threshold`; None is no bound."""
    least = float("-inf") if threshold is None else threshold
    return [chunk for chunk in ranked[:top_n] if chunk.score >= least]


def chunk(text: str, metadata: Mapping[str, Any], title_key: str | None) -> Chunk:
    """A chunk with the title that the metadata holds, if it holds one."""
    title = metadata.get(title_key) if title_key is not None else None
    return {"title": title, "text": text} if isinstance(title, str) and title else {"text": text}


def options(given: Mapping[str, Any]) -> Options:
    """Options as a user wrote them; the server checks them."""
    return cast(Options, dict(given))
