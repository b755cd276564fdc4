"""Which sizes are worth a probe: those that links have, and those that divide what is left (RFC 8899 §5.3.2)."""

from __future__ import annotations

from typing import Final

from qtunnel.pmtud.sizes import udp_payload

__all__ = ["FIRST_LINK_MTUS", "LIKELY_LINK_MTUS", "first_flight", "likely_below", "split"]

LIKELY_LINK_MTUS: Final = (
    1500, 1492, 1480, 1472, 1460, 1452, 1440, 1432, 1420, 1400, 1380, 1360, 1340, 1280,
)  # fmt: skip
"""IP packet sizes that links, and tunnels under ours, have: Ethernet, PPPoE, GRE, clouds, WireGuard, mobile."""

FIRST_LINK_MTUS: Final = (1500, 1492, 1460, 1432, 1400, 1380, 1340, 1280)
"""Those of them that are asked first: by trial, what remains between them takes the fewest flights."""


def first_flight(low: int, top: int, version: int) -> list[int]:
    """Return the sizes of the first flight between low, which is known to get through, and top: largest first."""
    likely = [udp_payload(mtu, version) for mtu in FIRST_LINK_MTUS]
    return sorted({top, *(size for size in likely if low < size < top)}, reverse=True)


def likely_below(size: int, base: int, version: int) -> list[int]:
    """Return the likely sizes from below `size` down to base, inclusive: largest first."""
    likely = [udp_payload(mtu, version) for mtu in LIKELY_LINK_MTUS]
    return [each for each in likely if base < each < size] + [base] * (base < size)


def split(low: int, high: int, ways: int) -> list[int]:
    """Return the sizes strictly between low and high that divide the gap in so many equal parts: largest first."""
    gap = high - low
    return sorted({low + gap * part // ways for part in range(1, ways)} - {low}, reverse=True)
