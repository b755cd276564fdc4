"""Runs to put into the parts of qtunnel.recovery."""

from __future__ import annotations

from qtunnel.recovery.sent_packets import DATA, DeliverySnapshot, SentPackets, SentRun

SIZE = 1200
NOTHING_DELIVERED: DeliverySnapshot = (0, 0.0, 0.0, 0, False)


def run(
    first: int,
    count: int = 1,
    *,
    size: int = SIZE,
    time_sent: float = 0.0,
    flags: int = DATA,
    payload: object | None = None,
) -> SentRun:
    """Return a run, all of it outstanding."""
    return SentRun(first, count, size, time_sent, flags, payload, NOTHING_DELIVERED, count * size)


def sent(*runs: SentRun) -> SentPackets:
    """Return the runs as sent in this order."""
    packets = SentPackets()
    for each in runs:
        packets.append(each)
    return packets


def taken(pairs: list[tuple[SentRun, int]]) -> list[int]:
    """Return the packet numbers in runs with bits."""
    return [each.first + bit for each, mask in pairs for bit in range(each.count) if mask >> bit & 1]
