"""Does an IPv6 packet of 1280 bytes get through? Way 2 of RFC 9484 §7.2: an echo of 1232 bytes, answered.

Each end asks for its own sending direction. The echo goes through the tunnel like any packet; the peer's answer
is taken out of the stream before it reaches the TUN. Echoes are repeated, as a lost one proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from ipaddress import IPv6Address
from typing import Final

from qtunnel.ip.echo import build_echo_request6, parse_echo_reply
from qtunnel.packet_run import PacketRun, Packets

__all__ = ["ALL_NODES", "CheckResult", "Ipv6Check"]

ALL_NODES: Final = IPv6Address("ff02::1")
SEND_AT: Final = (0.0, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0)
"""When each echo goes, in seconds after the start. Seven lost by chance: once in ten million at 10 % loss."""
GIVE_UP_AT: Final = 4.0
ECHO_DATA_LENGTH: Final = 1232  # + 8 ICMPv6 + 40 IPv6 = 1280


class CheckResult(Enum):
    """What is known so far."""

    PENDING = "pending"
    FITS = "fits"
    DOES_NOT_FIT = "does-not-fit"


class Ipv6Check:
    """One check of one direction. Call packet_to_send until it returns None, whenever the timer is due.

    source: our own address inside. destinations: asked in turn: ff02::1 (RFC 9484 §7.2), which qtunnel answers
    itself, so that no application sees the echo, and the peer's own address if known.
    identifier: 16 bits that tell our echoes from others'.
    """

    def __init__(
        self, *, source: IPv6Address, destinations: Sequence[IPv6Address], identifier: int, now: float
    ) -> None:
        self._source = source
        self._destinations = tuple(destinations)
        self._identifier = identifier
        self._started = now
        self._sent = 0
        self.result = CheckResult.PENDING

    @property
    def has_failed(self) -> bool:
        """Whether every echo stayed unanswered."""
        return self.result is CheckResult.DOES_NOT_FIT

    def get_timer(self) -> float | None:
        """Return when packet_to_send has something to do next; None once the result is known."""
        if self.result is not CheckResult.PENDING:
            return None
        offset = SEND_AT[self._sent] if self._sent < len(SEND_AT) else GIVE_UP_AT
        return self._started + offset

    def packet_to_send(self, now: float) -> bytes | None:
        """Return an echo request of 1280 bytes that is due, or None; the last deadline settles the result."""
        due = self.get_timer()
        if due is None or now < due:
            return None
        if self._sent == len(SEND_AT):
            self.result = CheckResult.DOES_NOT_FIT
            return None
        self._sent += 1
        destination = self._destinations[(self._sent - 1) % len(self._destinations)]
        return build_echo_request6(
            self._source, destination, self._identifier, self._sent, data_length=ECHO_DATA_LENGTH
        )

    def receive(self, packets: Packets) -> Packets:
        """Take our own answers out of a burst and return the rest. Any answer of full length settles it."""
        if isinstance(packets, PacketRun) or ECHO_DATA_LENGTH + 48 not in map(len, packets):
            return packets  # a run is a flow of TCP or UDP
        rest = []
        for packet in packets:
            reply = parse_echo_reply(packet)
            if reply is not None and reply.identifier == self._identifier and len(packet) == ECHO_DATA_LENGTH + 48:
                self.result = CheckResult.FITS
            else:
                rest.append(packet)
        return rest
