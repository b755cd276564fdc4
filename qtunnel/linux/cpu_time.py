"""How long this process has run, or has wanted to: time on a CPU, and time spent waiting for one."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Final

__all__ = ["wanted_cpu_time"]

SCHEDSTAT: Final = Path("/proc/self/schedstat")
"""Of the main thread: nanoseconds on a CPU, nanoseconds runnable and waiting, number of turns."""


def wanted_cpu_time(schedstat: Path = SCHEDSTAT) -> float:
    """Return seconds since the start; their growth over wall time tells how busy the event loop is.

    A process that gets half of a CPU because others have the rest is as much at its limit as one with a whole one:
    so what it waited counts. A kernel without schedstat tells only what it ran.
    """
    try:
        ran, waited, *_ = schedstat.read_bytes().split()
        return (int(ran) + int(waited)) / 1e9
    except (OSError, ValueError):
        return process_time()
