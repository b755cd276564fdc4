"""Congestion controllers, and the one place that knows their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from qtunnel.recovery.congestion.base import CongestionControl
from qtunnel.recovery.congestion.bbr import Bbr
from qtunnel.recovery.congestion.cubic import Cubic
from qtunnel.recovery.congestion.newreno import NewReno
from qtunnel.recovery.congestion.none import Unlimited

__all__ = ["CONGESTION_CONTROLS", "make_congestion_control"]

_MAKERS: Final[dict[str, Callable[[int, int], CongestionControl]]] = {
    "cubic": lambda size, _seed: Cubic(size),
    "bbr": lambda size, seed: Bbr(size, seed=seed),
    "reno": lambda size, _seed: NewReno(size),
    "none": lambda _size, _seed: Unlimited(),
}

CONGESTION_CONTROLS: Final = tuple(_MAKERS)
"""The names there are."""


def make_congestion_control(name: str, max_datagram_size: int, *, seed: int = 0) -> CongestionControl:
    """Return a new controller by its name, for one path.

    max_datagram_size: bytes of UDP payload. seed: anything random; it keeps flows from probing in step.

    Raises: ValueError if there is none of that name.
    """
    maker = _MAKERS.get(name)
    if maker is None:
        raise ValueError(f"{name!r} is none of {', '.join(_MAKERS)}")
    return maker(max_datagram_size, seed)
