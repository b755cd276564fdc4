"""One path: its packet number space, recovery, pacing, and where it leads. Path 0 is the only one yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from qtunnel.quic.received_packets import ReceivedPackets
from qtunnel.recovery.loss_recovery import LossRecovery

__all__ = ["MAX_OUTSTANDING", "Path"]

MAX_OUTSTANDING: Final = (1 << 15) - 1
"""Packet numbers between the oldest unacknowledged and the next: beyond, two bytes would be ambiguous."""


@dataclass(slots=True)
class Path:
    """path_id: RFC 10069's. network: aioquic's record of the peer's address on this path, and its validation.

    next_number: of the next packet. first_number: of the first that this plane sent; those below are aioquic's.
    """

    path_id: int
    network: Any
    recovery: LossRecovery
    received: ReceivedPackets = field(default_factory=ReceivedPackets)
    next_number: int = 0
    first_number: int = 0

    @property
    def is_number_ambiguous(self) -> bool:
        """Whether the next packet number is too far above the oldest unacknowledged for its two bytes."""
        oldest = self.recovery.first_outstanding()
        return oldest is not None and self.next_number - oldest >= MAX_OUTSTANDING
