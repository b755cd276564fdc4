"""Working memory that all connections of a thread share: what is large, and holds nothing from call to call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

__all__ = ["MAX_SHAPES", "per_thread"]

MAX_SHAPES: Final = 8
"""Shapes kept of each kind; about 300 KB each for packets of 1500 bytes."""
T = TypeVar("T")


def per_thread(make: Callable[[int, int], T]) -> Callable[[int, int], T]:
    """Return make, whose results each thread keeps, those of its last MAX_SHAPES arguments."""

    class Kept(threading.local):
        def __init__(self) -> None:
            self.made = lru_cache(maxsize=MAX_SHAPES)(make)

    kept = Kept()
    return lambda first, second: kept.made(first, second)
