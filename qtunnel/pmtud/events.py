"""What path MTU discovery reports. Sizes in bytes of UDP payload, times in seconds as they were given to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from qtunnel.pmtud.states import State

__all__ = [
    "Acquitted",
    "Convicted",
    "PmtudEvent",
    "SearchEnded",
    "SizeChanged",
    "StateChanged",
    "Suspected",
    "Unusable",
]


@dataclass(slots=True, frozen=True, kw_only=True)
class StateChanged:
    """Another state was entered (RFC 8899 §5.2)."""

    time: float
    old: State
    new: State
    reason: str


@dataclass(slots=True, frozen=True, kw_only=True)
class SizeChanged:
    """Packets may, or must, have another size from now on."""

    time: float
    old: int
    new: int
    reason: str


@dataclass(slots=True, frozen=True, kw_only=True)
class Suspected:
    """Packets of the present size may vanish; the question has been put to the path."""

    time: float
    size: int
    reason: str


@dataclass(slots=True, frozen=True, kw_only=True)
class Acquitted:
    """A packet of the suspected size got through: nothing changes."""

    time: float
    size: int
    reason: str


@dataclass(slots=True, frozen=True, kw_only=True)
class Convicted:
    """Packets of the old size vanish. Every one of more than `new` bytes, sent or queued, is to be discarded now.

    suspected_at: when suspicion began; pairs: how many pairs of packets were asked. A SizeChanged follows.
    """

    time: float
    old: int
    new: int
    suspected_at: float
    pairs: int
    reason: str


@dataclass(slots=True, frozen=True, kw_only=True)
class SearchEnded:
    """The largest size is known: the next byte was refused, or no more is allowed."""

    time: float
    size: int
    probes: int
    probe_bytes: int
    flights: int
    reason: str


@dataclass(slots=True, frozen=True, kw_only=True)
class Unusable:
    """The path does not carry even the smallest size QUIC needs. It is asked again from time to time."""

    time: float
    size: int
    reason: str


PmtudEvent: TypeAlias = StateChanged | SizeChanged | Suspected | Acquitted | Convicted | SearchEnded | Unusable
