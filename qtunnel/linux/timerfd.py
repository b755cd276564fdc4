"""One timer of the kernel's, exact to some microseconds (timerfd_create(2)).

Event loops are not: epoll counts in milliseconds, and libuv rounds a timer to the nearest one, so that it may come
too early and be set again and again until its time has come.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Final

__all__ = ["TimerFd"]

_CLOCK_MONOTONIC: Final = 1
_TFD_NONBLOCK: Final = os.O_NONBLOCK
_TFD_CLOEXEC: Final = os.O_CLOEXEC
_TFD_TIMER_ABSTIME: Final = 1

_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class TimerFd:
    """A descriptor that is readable once its time has come; from Python 3.13 on, os has the same.

    Raises: OSError if there are no descriptors left.
    """

    def __init__(self) -> None:
        self._fd = _check(_libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC))
        self._spec = _Itimerspec()
        self._reference = ctypes.byref(self._spec)

    def fileno(self) -> int:
        """Return the descriptor; -1 once closed."""
        return self._fd

    def set(self, at: float | None) -> None:
        """Set it to a time of time.monotonic(), seconds; what is past comes at once. None: never."""
        value = self._spec.value
        # All zero would stop it.
        nanoseconds = 0 if at is None else max(1, round(at * 1e9))
        value.seconds, value.nanoseconds = divmod(nanoseconds, 1_000_000_000)
        _check(_libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, self._reference, None))

    def clear(self) -> None:
        """Make the descriptor unreadable until the next set()."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
