"""What path MTU discovery is told before it begins. Sizes are bytes of UDP payload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from qtunnel.pmtud.sizes import base_plpmtu, udp_payload

__all__ = ["MAX_PROBES", "PMTU_RAISE_TIMER", "PROBE_TIMER", "PathMtuConfig"]

MAX_PROBES: Final = 3
"""A size has failed after so many successive losses (RFC 8899 §5.1.2)."""
PMTU_RAISE_TIMER: Final = 600.0
"""Seconds from the end of a search to the next look for more (RFC 8899 §5.1.1)."""
PROBE_TIMER: Final = 15.0
"""Seconds. Loss detection tells of a lost probe after about a round trip; where nothing at all is acknowledged,
this does (RFC 8899 §5.1.1: at least 1, better 15)."""


@dataclass(slots=True, frozen=True, kw_only=True)
class PathMtuConfig:
    """What is known of one path. Sizes in bytes of UDP payload; `sizes.udp_payload` makes them of a link MTU.

    version: 4 or 6, of the outer IP. interface: what the local interface takes. peer_limit: the peer's
    max_udp_payload_size. ceiling, floor: the administrator's; nothing above the first is tried, nothing below the
    second is believed. told: the size, fixed: nothing is probed. remembered: what a former connection on the same
    network found; it is tried first. search: "sequential" is RFC 8899 to the letter, one probe a round trip.
    black_hole: how a path that became narrower is found; "off" never finds one, and "loss_count" believes in one
    as soon as losses make it likely, which is wrong too often: both are for comparison.
    """

    version: int = 4
    interface: int = 1472
    peer_limit: int = 65527
    ceiling: int | None = None
    floor: int | None = None
    told: int | None = None
    remembered: int | None = None
    search: Literal["parallel", "sequential"] = "parallel"
    black_hole: Literal["confirm", "off", "loss_count"] = "confirm"
    raise_interval: float = PMTU_RAISE_TIMER

    @property
    def base(self) -> int:
        """BASE_PLPMTU: what is used before anything is known, and what the path must carry."""
        base = base_plpmtu(self.version)
        return base if self.floor is None else max(base, min(self.floor, self.most))

    @property
    def start(self) -> int:
        """What packets may have at first: what was told, within what QUIC and the peer allow, or the base."""
        return self.base if self.told is None else max(base_plpmtu(self.version), min(self.told, self.most))

    @property
    def most(self) -> int:
        """MAX_PLPMTU, the least of what interface, peer and administrator allow (RFC 8899 §5.1.2)."""
        most = min(self.interface, self.peer_limit, udp_payload(65535, self.version))
        if self.ceiling is not None:
            most = min(most, self.ceiling)
        return max(most, base_plpmtu(self.version))

    @property
    def limited_by(self) -> str:
        """Which of the three limits `most`: "interface", "peer" or "ceiling"."""
        if self.ceiling is not None and self.ceiling < min(self.interface, self.peer_limit):
            return "ceiling"
        return "peer" if self.peer_limit < self.interface else "interface"
