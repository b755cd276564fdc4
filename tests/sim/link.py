"""One direction of a simulated network: delay, rate, loss, a size limit, reordering, duplicates, from a seed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

IPV4_UDP_HEADERS = 28
IPV6_UDP_HEADERS = 48


def udp_payload(mtu: int, version: int = 4) -> int:
    """Return the largest UDP payload an IP packet of `mtu` bytes holds. Bytes."""
    return mtu - (IPV4_UDP_HEADERS if version == 4 else IPV6_UDP_HEADERS)


class Fate(StrEnum):
    """What became of a datagram."""

    DELIVERED = "delivered"
    LOST = "lost"
    TOO_BIG = "too-big"
    QUEUE_FULL = "queue-full"
    DOWN = "down"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"


@dataclass(slots=True, kw_only=True)
class Conditions:
    """How the link behaves now; every field may be changed while packets are under way.

    delay, jitter, reorder_delay, max_queue_delay: seconds. rate_bps: bits per second, None for no limit.
    loss, reorder, duplicate: probabilities, 0 to 1. size_limit: largest UDP payload in bytes that gets
    through; what is larger vanishes silently, as behind a router that sends no ICMP.
    """

    delay: float = 0.01
    jitter: float = 0.0
    rate_bps: float | None = None
    max_queue_delay: float = 0.5
    loss: float = 0.0
    size_limit: int | None = None
    reorder: float = 0.0
    reorder_delay: float = 0.02
    duplicate: float = 0.0
    up: bool = True


class SimLink:
    """Decides the fate of each datagram. Knows no receiver: it says when, the caller delivers."""

    def __init__(self, conditions: Conditions, *, seed: int) -> None:
        self.conditions = conditions
        self.counts: Counter[Fate] = Counter()
        self.largest_delivered = 0
        self._random = random.Random(seed)
        self._free_at = 0.0

    def send(self, datagram: bytes, now: float) -> list[float]:
        """Return the times of arrival: none if it is lost, two if it is duplicated."""
        conditions = self.conditions
        # Draw every time, whatever the fate, so that changing one condition leaves the others' dice alone.
        loss, reorder, duplicate, jitter = (self._random.random() for _ in range(4))
        if not conditions.up:
            return self._gone(Fate.DOWN)
        if conditions.size_limit is not None and len(datagram) > conditions.size_limit:
            return self._gone(Fate.TOO_BIG)
        if loss < conditions.loss:
            return self._gone(Fate.LOST)
        leaves = now
        if conditions.rate_bps is not None:
            leaves = max(now, self._free_at)
            if leaves - now > conditions.max_queue_delay:
                return self._gone(Fate.QUEUE_FULL)
            leaves += (len(datagram) + IPV4_UDP_HEADERS) * 8 / conditions.rate_bps
            self._free_at = leaves
        arrival = leaves + conditions.delay + jitter * conditions.jitter
        if reorder < conditions.reorder:
            self.counts[Fate.REORDERED] += 1
            arrival += conditions.reorder_delay
        self.counts[Fate.DELIVERED] += 1
        self.largest_delivered = max(self.largest_delivered, len(datagram))
        arrivals = [arrival]
        if duplicate < conditions.duplicate:
            self.counts[Fate.DUPLICATED] += 1
            arrivals.append(arrival + conditions.reorder_delay)
        return arrivals

    def _gone(self, fate: Fate) -> list[float]:
        self.counts[fate] += 1
        return []
