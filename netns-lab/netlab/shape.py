"""What one direction of a link does to packets: the one description that every back end carries out.

Units and meaning, the same in each back end (docs of the lab, "The two back ends"):

* rate_bps counts the IP packet plus 14 bytes of Ethernet header, as the kernel's queueing disciplines do;
* delay_s is one way; a packet is due at max(arrival, end of the one before) + size/rate + delay;
* the queue is limited in packets *including* those under way in the delay line (netem's limit), or in bytes
  waiting for the wire (tbf's limit), or both;
* loss is decided before the queue; a reordered packet skips queue and delay;
* there is no MTU here: sizes are the business of the router's routes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

ETHERNET_HEADER: Final = 14
FULL_FRAME: Final = 1514
UNLIMITED_PACKETS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One direction of a link. rate_bps None: as fast as the machine; loss and reorder are shares from 0 to 1."""

    rate_bps: float | None = None
    delay_s: float = 0.0
    limit_packets: int = UNLIMITED_PACKETS
    limit_bytes: int | None = None
    loss: float = 0.0
    reorder: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        if self.rate_bps is not None and self.rate_bps < 8_000:
            raise ValueError(f"rate_bps: {self.rate_bps} is below 8000 bits per second")
        if not 0 <= self.delay_s <= 10:
            raise ValueError(f"delay_s: {self.delay_s} is outside 0 to 10 seconds")
        if self.limit_packets < 1 or (self.limit_bytes is not None and self.limit_bytes < FULL_FRAME):
            raise ValueError("the queue must hold at least one full packet")
        if self.limit_bytes is not None and self.rate_bps is None:
            raise ValueError("limit_bytes: a queue in bytes needs a rate")
        if self.reorder and not self.delay_s:
            raise ValueError("reorder: without a delay there is nothing to overtake")
        for name, share in (("loss", self.loss), ("reorder", self.reorder)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name}: {share} is outside 0 to 1")

    @classmethod
    def of(cls, rate_bps: float, rtt_s: float, *, queue_bdp: float = 1.0, in_bytes: bool = False) -> Self:
        """Return one direction of a symmetric link with a queue of so many bandwidth-delay products.

        in_bytes limits the queue in bytes; otherwise in packets, with those in the delay line added.
        """
        queue_bytes = max(FULL_FRAME, queue_bdp * rate_bps * rtt_s / 8)
        on_the_way = rate_bps * rtt_s / 2 / 8
        if in_bytes:
            return cls(rate_bps=rate_bps, delay_s=rtt_s / 2, limit_bytes=math.ceil(queue_bytes))
        packets = math.ceil((queue_bytes + on_the_way) / FULL_FRAME)
        return cls(rate_bps=rate_bps, delay_s=rtt_s / 2, limit_packets=packets)

    def but(self, **changes: Any) -> Self:
        """Return the same with some settings changed."""
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Return what as_dict gave."""
        return cls(**settings)
