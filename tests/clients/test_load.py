"""A short load; `load.py` alone takes a longer one."""

from __future__ import annotations

import load


def test_a_mixed_load_is_borne() -> None:
    assert load.run(clients=12, seconds=6, limit=8, slack=64) == []
