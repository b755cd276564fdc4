"""Packets that ask the path a question, and which of them are unanswered (RFC 8899 §4.1)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

__all__ = ["SMALL_SIZE", "ProbePacket", "Purpose"]

SMALL_SIZE: Final = 64
"""Bytes of UDP payload of a small packet: it gets through wherever anything does."""


class Purpose(enum.Enum):
    """What a packet is for."""

    BASE = "base"
    SEARCH = "search"
    PAIR = "pair"
    COMPANION = "companion"
    TRAILER = "trailer"


@dataclass(slots=True, frozen=True)
class ProbePacket:
    """A packet to send now, on its own, never inside a segmented send: PING, then PADDING to exactly `size` bytes.

    is_probe: send it as an MTU probe, without user data, whose loss is no congestion and arms no probe timeout;
    then call `on_probe_sent`. Otherwise it is an ordinary ack-eliciting packet, and nobody asks about it again; it
    lets loss detection see what became of the probes before it.
    """

    size: int
    purpose: Purpose
    owner: object = field(default=None, compare=False, repr=False)
    """Whose question it is; of no interest to the caller."""

    @property
    def is_probe(self) -> bool:
        """Whether it is sent as an MTU probe."""
        return self.purpose is not Purpose.TRAILER
