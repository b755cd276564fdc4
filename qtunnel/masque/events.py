"""What a session reports of its peer: one frozen event for each thing, in the order of the stream."""

from __future__ import annotations

from dataclasses import dataclass

from qtunnel.config import IPInterface
from qtunnel.masque.address_capsules import AddressRange, AssignedAddress, RequestedAddress

__all__ = [
    "AddressesAssigned",
    "AddressesRequested",
    "PacketsInCapsules",
    "RoutesAdvertised",
    "SessionEnded",
    "SessionEvent",
]


@dataclass(frozen=True, slots=True)
class AddressesAssigned:
    """The complete list of what we may send from (RFC 9484 §4.7.1); an address that is missing is withdrawn.

    addresses: each once, in the peer's order, without refusals. refused: the Request IDs of ours that got nothing.
    entries: the list as sent, with Request IDs, for whoever wants to know which request an address answers.
    """

    addresses: tuple[IPInterface, ...]
    refused: tuple[int, ...] = ()
    entries: tuple[AssignedAddress, ...] = ()


@dataclass(frozen=True, slots=True)
class AddressesRequested:
    """The peer would like addresses: answer with Session.answer_requests (RFC 9484 §4.7.2)."""

    requests: tuple[RequestedAddress, ...]


@dataclass(frozen=True, slots=True)
class RoutesAdvertised:
    """The complete list of what the peer routes (RFC 9484 §4.7.3); a range that is missing is withdrawn.

    The list is the receiver's to keep.
    """

    ranges: list[AddressRange]


@dataclass(frozen=True, slots=True)
class PacketsInCapsules:
    """Inner packets that came in DATAGRAM capsules, in order; the same rules apply as to those in datagrams."""

    packets: list[bytes]


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The tunnel is over; nothing follows.

    clean: the peer ended the stream between two capsules. Otherwise it was reset, or the peer broke a rule.
    reason: what happened, for the log.
    """

    clean: bool
    reason: str = ""


SessionEvent = AddressesAssigned | AddressesRequested | RoutesAdvertised | PacketsInCapsules | SessionEnded
