"""A short load; `load.py` alone takes a longer one."""

from __future__ import annotations

import load


def test_a_mixed_load_is_borne() -> None:
    # the KV pool still fills in so short a time: only a long load says whether memory grows
    assert load.run(clients=12, seconds=6, limit=8, slack=float("inf")) == []
