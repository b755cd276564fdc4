"""Plain integer counters of one tunnel stream, or of a whole role."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from qtunnel.drops import DropCounts
from qtunnel.packet_run import Packets, total_size

__all__ = ["TrafficStats", "drops_as_dict", "merge_drops"]


@dataclass(slots=True)
class TrafficStats:
    """Inner packets and bytes by direction: in = from the peer, out = to the peer."""

    packets_in: int = 0
    packets_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    icmp_sent: int = 0
    drops: DropCounts = field(default_factory=DropCounts)

    def count_in(self, packets: Packets) -> None:
        """Count inner packets received from the peer and accepted."""
        self.packets_in += len(packets)
        self.bytes_in += total_size(packets)

    def count_out(self, packets: Packets) -> None:
        """Count inner packets handed to the connection."""
        self.packets_out += len(packets)
        self.bytes_out += total_size(packets)

    def take_back(self, packets: Packets) -> None:
        """Take back packets counted as sent: they were returned unsent."""
        self.packets_out -= len(packets)
        self.bytes_out -= total_size(packets)

    def as_dict(self) -> dict[str, Any]:
        """Return the counters for status output; only drops that happened."""
        return {
            "packets_in": self.packets_in,
            "packets_out": self.packets_out,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "icmp_sent": self.icmp_sent,
            "drops": drops_as_dict(self.drops),
        }


def drops_as_dict(drops: DropCounts) -> dict[str, int]:
    """Return the counters that are not zero, by the reason's public name, most frequent first."""
    return {str(reason): count for reason, count in drops.most_common() if count}


def merge_drops(counts: Iterable[DropCounts]) -> DropCounts:
    """Return the sum of several drop counters."""
    total = DropCounts()
    for each in counts:
        total.update(each)
    return total
