"""One CONNECT-IP request in use: inner packets in, datagrams out, and back. The same on client and server."""

from __future__ import annotations

from typing import Final

from qtunnel.drops import DropReason
from qtunnel.ip.forward import Forwarder, HopLimit, IcmpErrors
from qtunnel.ip.policy import Policy
from qtunnel.masque.session import Session
from qtunnel.packet_run import PacketRun, Packets
from qtunnel.quic.h3 import HttpConnection
from qtunnel.tunnel.ipv6_check import CheckResult, Ipv6Check
from qtunnel.tunnel.stats import TrafficStats

__all__ = ["MIN_IPV6_MTU", "IpStream"]

MIN_IPV6_MTU: Final = 1280
SMALL_PACKET: Final = 1100
"""Bytes up to which a packet fits every path that QUIC can use."""
DONT_FRAGMENT: Final = 0x40
MAX_FLOWS: Final = 64
"""Flows that are told at once when the path becomes narrower."""
TELL_AFTER: Final = 2.0
"""Round trips, acknowledgement delays included, in which the search has found a likely size. Not more: TCP that is
told just after its own timeout sends eight packets a round trip for seconds (Linux 6.18)."""
MOST_DELAY: Final = 0.2
MAX_CAPSULE_BACKLOG: Final = 64 * 1024
"""Bytes of packets in capsules that wait; what comes then is dropped, and counted."""
UNSENT: Final = frozenset(
    {
        DropReason.DATAGRAM_TOO_LARGE,
        DropReason.NO_SESSION,
        DropReason.QUEUE_DELAY,
        DropReason.QUEUE_FULL,
        DropReason.QUEUE_TOO_OLD,
    }
)
"""Drops of packets that had been counted as sent."""


class IpStream:
    """Egress is what we send into the tunnel, ingress what comes out of it.

    icmp: who speaks when a packet is refused. ingress must refuse this host's own addresses as a source, since
    accept_local makes the kernel believe them (docs/design/0004-too-big.md). Echoes to ff02::1 are answered by
    the ingress itself (RFC 9484 §7.2), so that it also holds without a TUN. ended: the peer closed the stream.

    While the path carries less than 1280 bytes inside, IPv6 packets travel in DATAGRAM capsules (RFC 9297 §3.5),
    as over a link that fragments (RFC 8200 §5). replies: ICMP errors for where packets came from, to be taken.
    """

    def __init__(
        self,
        connection: HttpConnection,
        stream_id: int,
        session: Session,
        *,
        icmp: IcmpErrors,
        egress: Policy,
        ingress: Policy,
        stats: TrafficStats | None = None,
    ) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.session = session
        self.stats = TrafficStats() if stats is None else stats
        self.mtu = 0
        self.ended = False
        self.ipv6_check: Ipv6Check | None = None
        self.replies: list[bytes] = []
        self._flows: dict[bytes, bytes] = {}
        self._tell_at: float | None = None
        self._icmp = icmp
        self._egress = Forwarder(policy=egress, icmp=icmp, mtu=self.mtu)
        self._ingress = Forwarder(policy=ingress, icmp=icmp)

    def set_policies(self, *, egress: Policy, ingress: Policy) -> None:
        """Replace what may pass, in each direction."""
        self._egress.policy = egress
        self._ingress.policy = ingress

    def update_mtu(self, now: float) -> tuple[int, int] | None:
        """Take over the connection's present packet size; return (old, new) if it changed.

        When it fell, every flow whose last large packet no longer fits is told, into replies: what was on its way
        is lost, and its sender would otherwise wait for a timeout. If nothing has been seen to get through yet,
        that waits for TELL_AFTER round trips at most: a sender keeps for ten minutes to what it was told.
        """
        new = self.connection.max_packet_size(self.stream_id)
        old = self.mtu
        if new != old:
            self.mtu = new
            self._egress.mtu = new
            if new < old and self._tell_at is None:
                self._tell_at = now + min(TELL_AFTER * self.connection.round_trip, MOST_DELAY)
                self._egress.is_mtu_final = False
        if self._tell_at is not None and (now >= self._tell_at or self.connection.is_size_proved):
            self._tell_at = None
            self._egress.is_mtu_final = True
            self._tell_flows(now)
        return None if new == old else (old, new)

    def _tell_flows(self, now: float) -> None:
        mtu = self.mtu
        for key, packet in list(self._flows.items()):
            if len(packet) > (mtu if packet[0] >> 4 == 4 else max(mtu, MIN_IPV6_MTU)):
                del self._flows[key]
                reply = self._icmp.too_big(packet, mtu, now)
                if reply is not None:
                    self.replies.append(reply)
                    self.stats.icmp_sent += 1

    def resend(self, packets: Packets, now: float) -> None:
        """Take packets that came back unsent, as the path became narrower: fragment them, or tell their sender."""
        self.stats.take_back(packets)
        self.replies += self.send(packets, now)

    def send(self, packets: Packets, now: float, *, routed_here: bool = False) -> list[bytes]:
        """Send inner packets to the peer; return ICMP errors for where the packets came from.

        routed_here: qtunnel itself is the router (client to client), so it lowers the hop limit; otherwise a
        kernel has done that (design D7).
        """
        self._egress.hop_limit = HopLimit.DECREMENT if routed_here else HopLimit.KEEP
        forwarded = self._egress.forward(packets, now)
        if forwarded.has_drops:
            self.stats.drops.update(forwarded.drops)
        for group in forwarded.groups:
            self._remember(group)
            self._queue(group, now)
        self.stats.icmp_sent += len(forwarded.replies)
        return forwarded.replies

    def receive(self, packets: Packets, now: float) -> list[Packets]:
        """Check inner packets from the peer; return those that may go on, in groups. ICMP errors go back to it."""
        forwarded = self._ingress.forward(packets, now)
        if forwarded.has_drops:
            self.stats.drops.update(forwarded.drops)
        if forwarded.replies:
            self.stats.icmp_sent += len(forwarded.replies)
            self._queue(forwarded.replies, now)
        accepted = forwarded.groups
        if self.ipv6_check is not None:
            # Answers come late, too, and are nobody else's.
            accepted = [rest for group in accepted if (rest := self.ipv6_check.receive(group))]
        for group in accepted:
            self.stats.count_in(group)
        return accepted

    def send_unchecked(self, packets: list[bytes], now: float) -> None:
        """Send ICMP errors of our own to the peer."""
        self.stats.icmp_sent += len(packets)
        self._queue(packets, now)

    def receive_datagrams(self, payloads: Packets, now: float) -> list[Packets]:
        """Check HTTP Datagram payloads that do not begin with the plain Context ID, as receive does packets."""
        session = self.session
        packets = [packet for payload in payloads if (packet := session.receive_datagram(payload)) is not None]
        if session.drops:
            self.stats.drops.update(session.drops)
            session.drops.clear()
        return self.receive(packets, now) if packets else []

    def send_capsules(self) -> None:
        """Send the capsules the session has ready; none once the peer closed the stream."""
        data = self.session.data_to_send()
        if data and not self.ended:
            self.connection.send_data(self.stream_id, data)

    def run_ipv6_check(self, now: float) -> bool:
        """Send the echoes that are due; return True once the check has just ended without an answer."""
        check = self.ipv6_check
        if check is None or check.result is not CheckResult.PENDING:
            return False
        while (packet := check.packet_to_send(now)) is not None:
            self._queue([packet], now)
        return check.has_failed

    def get_timer(self) -> float | None:
        """Return when run_ipv6_check or update_mtu is due."""
        check_at = None if self.ipv6_check is None else self.ipv6_check.get_timer()
        if self._tell_at is None or check_at is None:
            return check_at if self._tell_at is None else self._tell_at
        return min(check_at, self._tell_at)

    def _remember(self, packets: Packets) -> None:
        """Keep the newest large packet of each flow that can be told, of a run the first."""
        if self._tell_at is not None:
            return  # who is to be told by then is known
        flows = self._flows
        if isinstance(packets, PacketRun) and packets.is_flow:
            packets = (packets[0],)
        for packet in packets:
            if len(packet) > SMALL_PACKET:
                if packet[0] >> 4 == 6:
                    key = packet[8:44]
                elif packet[6] & DONT_FRAGMENT:
                    key = packet[12:24]
                else:
                    continue
                flows.pop(key, None)
                flows[key] = packet
                if len(flows) > MAX_FLOWS:
                    del flows[next(iter(flows))]

    def _queue(self, packets: Packets, now: float) -> None:
        if self.mtu < MIN_IPV6_MTU:
            packets = self._send_ipv6_in_capsules(packets)
            if not packets:
                return
        self.stats.count_out(packets)
        self.connection.send_packets(self.stream_id, packets, now)
        self.collect_drops()

    def _send_ipv6_in_capsules(self, packets: Packets) -> Packets:
        """Send the IPv6 packets of a burst in capsules; return the others."""
        others = [packet for packet in packets if packet[0] >> 4 != 6]
        if len(others) == len(packets):
            return packets
        backlog = self.connection.stream_backlog(self.stream_id)
        for packet in packets:
            if packet[0] >> 4 != 6:
                continue
            if backlog > MAX_CAPSULE_BACKLOG or self.ended:
                self.stats.drops[DropReason.STREAM_CLOSED if self.ended else DropReason.QUEUE_FULL] += 1
                continue
            backlog += len(packet)
            self.session.send_packet_capsule(packet)
            self.stats.count_out([packet])
        self.send_capsules()
        return others

    def collect_drops(self) -> None:
        """Take over what the connection has dropped since, also packets that waited in its queue in vain.

        To be called before the counters are shown, and once the connection is over.
        """
        drops = self.connection.drops
        if drops:
            self.stats.drops.update(drops)
            self.stats.packets_out -= sum(count for reason, count in drops.items() if reason in UNSENT)
            drops.clear()

    @property
    def unanswered_ipv6(self) -> str:
        """What to say of a peer that has not answered the echo."""
        how = "" if self.mtu >= MIN_IPV6_MTU else f", sent in capsules as the path carries {self.mtu} bytes inside"
        return f"did not answer an IPv6 echo of {MIN_IPV6_MTU} bytes{how}"
