"""One pass over a burst of inner packets: what may pass, what is answered with ICMP, what is dropped and why.

The order is a router's (RFC 1812 §5.2.1): validate, apply the policy, look at the hop limit, then at the size. A
packet that fails costs nothing but itself, never the tunnel (RFC 9484 §7.2). DSCP and ECN are not touched: the
outer packets are congestion controlled, so RFC 6040 copying does not apply (RFC 9484 §10.2, §10.3).
"""

from __future__ import annotations

from collections import Counter
from enum import Enum, StrEnum
from ipaddress import IPv4Address, IPv6Address
from struct import Struct
from typing import Final

from qtunnel.drops import DropCounts, DropReason
from qtunnel.errors import MalformedPacketError
from qtunnel.flow_runs import flow_runs
from qtunnel.ip import icmp as icmp_messages
from qtunnel.ip.echo import answer_echo, is_echo
from qtunnel.ip.fragment import fragment_ipv4
from qtunnel.ip.header import IPV6_MIN_MTU, IpHeader, decrement_hop_limit, parse_header
from qtunnel.ip.icmp_limit import TokenBucket
from qtunnel.ip.policy import Policy
from qtunnel.packet_run import PacketRun, Packets, flatten

__all__ = ["Forwarded", "Forwarder", "HopLimit", "IcmpErrors", "Suppressed"]

TOO_BIG_FACTOR: Final = 10
"""How many times more often too-big messages may be sent than others, in rate and in burst.

When a path shrinks every flow has to be told at once; one that is not stands still for a retransmission timeout.
500 at a time, by default."""

_UNREACHABLE_CODES: Final[dict[DropReason, tuple[int | None, int | None]]] = {
    # no route: RFC 1812 §5.2.7.1, RFC 4443 §3.1
    DropReason.DESTINATION_NOT_ALLOWED: (0, 0),
    DropReason.IPV6_UNAVAILABLE: (None, 0),
    # ours to deliver, and nobody there: host unreachable, address unreachable
    DropReason.NO_ROUTE: (1, 3),
    # administratively prohibited
    DropReason.PROTOCOL_NOT_ALLOWED: (13, 1),
    DropReason.CLIENT_TO_CLIENT: (13, 1),
    DropReason.ROUTING_HEADER: (None, 1),
    # source address failed ingress policy
    DropReason.SOURCE_NOT_ALLOWED: (13, 5),
}
"""Destination Unreachable codes of IPv4 and IPv6 by reason. All other reasons are silent, congestion above all."""

_FAST4: Final = Struct(">2xH2xHxB").unpack_from
"""Total length, flags and fragment offset, protocol."""
_IS_FRAGMENT: Final = 0x3FFF
"""MF, or an offset."""
_FAST6: Final = Struct(">4xHB").unpack_from
"""Payload length, next header."""
_PLAIN6: Final = frozenset((6, 17, 58))
"""TCP, UDP and ICMPv6: no extension header to walk."""
_NO_LIMIT: Final = 0xFFFF


class HopLimit(Enum):
    """Who lowers TTL and Hop Limit. The kernel does for what it routes into or out of a TUN (design D7)."""

    KEEP = "keep"
    DECREMENT = "decrement"  # qtunnel itself is the router: client to client, or without a TUN


class Suppressed(StrEnum):
    """Why an ICMP error was not sent."""

    FORBIDDEN = "forbidden"  # never about such a packet, or not for this reason
    RATE_LIMITED = "rate-limited"
    SWITCHED_OFF = "switched-off"
    NO_ADDRESS = "no-address"  # we have none of that family to send it from


class Forwarded:
    """What became of a burst.

    groups: what passed, in order; a fragmented packet's fragments in its place. A flow that came in a run is one.
    replies: ICMP messages for where the burst came from. drops: one for each packet that neither passed nor was
    answered as an echo. It is made when there is one, which is rare.
    """

    __slots__ = ("_drops", "groups", "replies")

    def __init__(self) -> None:
        self.groups: list[Packets] = []
        self.replies: list[bytes] = []
        self._drops: DropCounts | None = None

    @property
    def has_drops(self) -> bool:
        """Whether anything was dropped."""
        return self._drops is not None

    @property
    def drops(self) -> DropCounts:
        """Dropped packets by reason."""
        return DropCounts() if self._drops is None else self._drops

    def drop(self, reason: DropReason, count: int = 1) -> None:
        """Count packets that did not pass."""
        if self._drops is None:
            self._drops = DropCounts()
        self._drops[reason] += count

    @property
    def packets(self) -> list[bytes]:
        """The packets of all groups."""
        return flatten(self.groups)

    def singles(self) -> list[bytes]:
        """Return the list that the next single packet that passes is to be appended to."""
        if self.groups and isinstance(self.groups[-1], list):
            return self.groups[-1]
        singles: list[bytes] = []
        self.groups.append(singles)
        return singles


class IcmpErrors:
    """Who we are in ICMP errors, and how often we may speak (RFC 4443 §2.2, §2.4; RFC 1812 §4.3.2).

    address4, address6: our own address in the tunnel; without one there are no errors of that family. rate, in
    messages a second, and burst hold for unreachable and time exceeded together; too-big messages have a bucket of
    their own, TOO_BIG_FACTOR times larger. enabled: False silences the unreachables (RFC 4443 §3.1), not the two
    kinds that path MTU discovery and traceroute need.

    Each method returns the message, or None where there must be none; suppressed counts those by reason.
    """

    def __init__(
        self,
        *,
        address4: IPv4Address | None,
        address6: IPv6Address | None,
        rate: float = 100.0,
        burst: int = 50,
        enabled: bool = True,
    ) -> None:
        self.address4 = address4
        self.address6 = address6
        self.enabled = enabled
        self.sent = 0
        self.suppressed: Counter[Suppressed] = Counter()
        self._limit = TokenBucket(rate, burst)
        self._too_big_limit = TokenBucket(rate * TOO_BIG_FACTOR, burst * TOO_BIG_FACTOR)

    def too_big(self, packet: bytes, mtu: int, now: float) -> bytes | None:
        """Say that packet does not fit and packets of mtu bytes do; on IPv4 only about packets with DF."""
        header = self._answerable(packet, too_big=True)
        if header is None or not header.dont_fragment:
            return self._suppress(Suppressed.FORBIDDEN)
        source = self._speaker(header, self._too_big_limit, now)
        return None if source is None else icmp_messages.packet_too_big(packet, mtu, source)

    def time_exceeded(self, packet: bytes, now: float) -> bytes | None:
        """Say that the hop limit of packet ended here."""
        header = self._answerable(packet)
        if header is None:
            return self._suppress(Suppressed.FORBIDDEN)
        source = self._speaker(header, self._limit, now)
        return None if source is None else icmp_messages.time_exceeded(packet, source)

    def unreachable(self, packet: bytes, reason: DropReason, now: float) -> bytes | None:
        """Say that packet was dropped for this reason, if that is one to speak about."""
        codes = _UNREACHABLE_CODES.get(reason)
        header = None if codes is None else self._answerable(packet)
        if codes is None or header is None:
            return self._suppress(Suppressed.FORBIDDEN)
        code = codes[header.version == 6]
        if code is None:
            return self._suppress(Suppressed.FORBIDDEN)
        if not self.enabled:
            return self._suppress(Suppressed.SWITCHED_OFF)
        source = self._speaker(header, self._limit, now)
        return None if source is None else icmp_messages.unreachable(packet, code, source)

    def _answerable(self, packet: bytes, *, too_big: bool = False) -> IpHeader | None:
        try:
            header = parse_header(packet)
        except MalformedPacketError:
            return None
        return header if icmp_messages.is_answerable(packet, header, too_big=too_big) else None

    def _speaker(self, header: IpHeader, limit: TokenBucket, now: float) -> bytes | None:
        """Return our packed address for one more error about such a packet, and count it; None counts it too."""
        address = self.address4 if header.version == 4 else self.address6
        if address is None:
            return self._suppress(Suppressed.NO_ADDRESS)
        if not limit.allow(now):
            return self._suppress(Suppressed.RATE_LIMITED)
        self.sent += 1
        return address.packed

    def _suppress(self, why: Suppressed) -> bytes | None:
        """Count, and return the None that the caller returns."""
        self.suppressed[why] += 1
        return None


class Forwarder:
    """One direction of one session. Every attribute may be changed at any time, between two bursts.

    icmp: None answers nothing. mtu: the largest inner packet in bytes, None for no limit. It holds for IPv6 only
    from 1280 up, as no link of IPv6 is narrower; where 1280 bytes do not fit, the policy says ipv6=False.
    is_mtu_final: False while the mtu is about to rise: what is too big is then dropped without a word, as its
    sender would keep to a number that is too small for ten minutes.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        icmp: IcmpErrors | None,
        mtu: int | None = None,
        hop_limit: HopLimit = HopLimit.KEEP,
    ) -> None:
        self.policy = policy
        self.icmp = icmp
        self.mtu = mtu
        self.is_mtu_final = True
        self.hop_limit = hop_limit

    def forward(self, packets: Packets, now: float) -> Forwarded:
        """Judge each packet of a burst, whatever its bytes. now: seconds, for the ICMP rate limits.

        Packets of a flow are judged by the first of them, and a flow that is too big is told so once.
        """
        forwarded = Forwarded()
        groups = [packets]
        if isinstance(packets, PacketRun) and not packets.is_flow:
            groups = flow_runs(packets)
        for group in groups:
            if isinstance(group, PacketRun) and self.hop_limit is HopLimit.KEEP:
                self._forward_flow(group, forwarded, now)
            else:
                self._forward_each(group, forwarded, now)
        if not all(forwarded.groups):
            forwarded.groups = [group for group in forwarded.groups if group]
        return forwarded

    def _forward_flow(self, flow: PacketRun, forwarded: Forwarded, now: float) -> None:
        first = flow[0]
        if self._passes(first):
            forwarded.groups.append(flow)
            return
        alone = Forwarded()
        self._examine(first, alone, now)
        if alone.packets == [first]:
            forwarded.groups.append(flow)
        elif alone.has_drops:
            forwarded.replies += alone.replies
            for reason in alone.drops:
                forwarded.drop(reason, flow.rows)
        else:
            self._forward_each(flow, forwarded, now)  # they are fragmented, each for itself

    def _forward_each(self, packets: Packets, forwarded: Forwarded, now: float) -> None:
        """Judge packets one by one; what does not pass at once goes the long way, where every rule is."""
        append = forwarded.singles().append
        keep = self.hop_limit is HopLimit.KEEP
        passes = self._passes
        for packet in packets:
            if passes(packet):
                append(packet if keep else decrement_hop_limit(packet))
            else:
                self._examine(packet, forwarded, now)

    def _passes(self, packet: bytes) -> bool:
        """Return whether a packet is valid, unfragmented, plain, between addresses that passed before, and fits.

        So are nearly all.
        """
        length = len(packet)
        first = packet[0] if length >= 20 else 0
        mtu = _NO_LIMIT if self.mtu is None else self.mtu
        if first == 0x45:
            total, fragment, protocol = _FAST4(packet)
            return (
                packet[12:20] in self.policy.allowed_pairs[protocol]
                and total == length <= mtu
                and not fragment & _IS_FRAGMENT
                # The checksum is right if the header's words add up to a multiple of 65535 (ip/checksum.py).
                and not int.from_bytes(packet[:20], "big") % 0xFFFF
                and (packet[8] > 1 or self.hop_limit is HopLimit.KEEP)
            )
        if first >> 4 == 6:
            payload, protocol = _FAST6(packet)
            return (
                protocol in _PLAIN6
                and packet[8:40] in self.policy.allowed_pairs[protocol]
                and payload + 40 == length <= max(mtu, IPV6_MIN_MTU)
                and (packet[7] > 1 or self.hop_limit is HopLimit.KEEP)
            )
        return False

    def _examine(self, packet: bytes, forwarded: Forwarded, now: float) -> None:
        """Judge one packet by every rule."""
        try:
            header = parse_header(packet)
            reason = self.policy.check(header)
            if reason is not None:
                self._refuse(packet, header, reason, forwarded, now)
            elif self.hop_limit is HopLimit.DECREMENT:
                self._route(packet, header, forwarded, now)
            else:
                self._fit(packet, packet, header, forwarded, now)
        except MalformedPacketError:
            forwarded.drop(DropReason.MALFORMED)

    def _refuse(
        self, packet: bytes, header: IpHeader, reason: DropReason, forwarded: Forwarded, now: float
    ) -> None:
        """Drop what the policy refused; but a ping on the link is answered or passed on (RFC 9484 §7.2)."""
        if reason is DropReason.LINK_LOCAL:
            if self.policy.link_local and is_echo(packet):
                self._fit(packet, packet, header, forwarded, now)
                return
            if self.icmp is not None and self.icmp.address6 is not None:
                answer = answer_echo(packet, self.icmp.address6)
                if answer is not None:
                    forwarded.replies.append(answer)
                    return
        forwarded.drop(reason)
        if self.icmp is not None:
            self._reply(self.icmp.unreachable(packet, reason, now), forwarded)

    def _route(self, packet: bytes, header: IpHeader, forwarded: Forwarded, now: float) -> None:
        """Take one hop off a packet we route ourselves (RFC 1812 §5.3.1, RFC 4443 §3.3)."""
        if header.hop_limit > 1:
            self._fit(decrement_hop_limit(packet), packet, header, forwarded, now)
        elif self._is_for_us(header):
            self._fit(packet, packet, header, forwarded, now)
        else:
            forwarded.drop(DropReason.HOP_LIMIT)
            if self.icmp is not None:
                self._reply(self.icmp.time_exceeded(packet, now), forwarded)

    def _fit(self, packet: bytes, arrived: bytes, header: IpHeader, forwarded: Forwarded, now: float) -> None:
        """Pass a packet of the right size, or make it so. arrived: what an error quotes (RFC 1812 §4.3.2.3)."""
        mtu = self.mtu
        if mtu is None or len(packet) <= (mtu if header.version == 4 else max(mtu, IPV6_MIN_MTU)):
            forwarded.singles().append(packet)
        elif not header.dont_fragment and mtu >= header.header_length + 8:
            forwarded.singles().extend(fragment_ipv4(packet, mtu))
        else:
            forwarded.drop(DropReason.TOO_BIG)
            if self.icmp is not None and self.is_mtu_final:
                self._reply(self.icmp.too_big(arrived, mtu, now), forwarded)

    def _is_for_us(self, header: IpHeader) -> bool:
        """Return whether we are the destination and not a hop: then it does not matter that this was the last."""
        address = None
        if self.icmp is not None:
            address = self.icmp.address4 if header.version == 4 else self.icmp.address6
        return address is not None and address.packed == header.destination

    @staticmethod
    def _reply(message: bytes | None, forwarded: Forwarded) -> None:
        if message is not None:
            forwarded.replies.append(message)
