"""One CONNECT-IP request in use: inner packets in, datagrams out, and back. The same on client and server."""

from __future__ import annotations

from typing import Final

from qtunnel.drops import DropReason
from qtunnel.ip.forward import Forwarder, HopLimit, IcmpErrors
from qtunnel.ip.policy import Policy
from qtunnel.masque.session import Session
from qtunnel.packet_run import Packets
from qtunnel.quic.h3 import HttpConnection
from qtunnel.tunnel.ipv6_check import CheckResult, Ipv6Check
from qtunnel.tunnel.stats import TrafficStats

__all__ = ["MIN_IPV6_MTU", "IpStream", "too_small_for_ipv6"]

MIN_IPV6_MTU: Final = 1280
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
        self._icmp = icmp
        self._egress = Forwarder(policy=egress, icmp=icmp, mtu=self.mtu)
        self._ingress = Forwarder(policy=ingress, icmp=icmp)

    def set_policies(self, *, egress: Policy, ingress: Policy) -> None:
        """Replace what may pass, in each direction."""
        self._egress.policy = egress
        self._ingress.policy = ingress

    def update_mtu(self) -> tuple[int, int] | None:
        """Take over the connection's present packet size; return (old, new) if it changed."""
        new = self.connection.max_packet_size(self.stream_id)
        if new == self.mtu:
            return None
        old, self.mtu = self.mtu, new
        self._egress.mtu = new
        return old, new

    def send(self, packets: Packets, now: float, *, routed_here: bool = False) -> list[bytes]:
        """Send inner packets to the peer; return ICMP errors for where the packets came from.

        routed_here: qtunnel itself is the router (client to client), so it lowers the hop limit; otherwise a
        kernel has done that (design D7).
        """
        self._egress.hop_limit = HopLimit.DECREMENT if routed_here else HopLimit.KEEP
        forwarded = self._egress.forward(packets, now)
        if forwarded.drops:
            self.stats.drops.update(forwarded.drops)
        for group in forwarded.groups:
            self._queue(group, now)
        self.stats.icmp_sent += len(forwarded.replies)
        return forwarded.replies

    def receive(self, packets: Packets, now: float) -> list[Packets]:
        """Check inner packets from the peer; return those that may go on, in groups. ICMP errors go back to it."""
        forwarded = self._ingress.forward(packets, now)
        if forwarded.drops:
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
        """Return when run_ipv6_check is due."""
        return None if self.ipv6_check is None else self.ipv6_check.get_timer()

    def _queue(self, packets: Packets, now: float) -> None:
        self.stats.count_out(packets)
        self.connection.send_packets(self.stream_id, packets, now)
        self.collect_drops()

    def collect_drops(self) -> None:
        """Take over what the connection has dropped since, also packets that waited in its queue in vain.

        To be called before the counters are shown, and once the connection is over.
        """
        drops = self.connection.drops
        if drops:
            self.stats.drops.update(drops)
            self.stats.packets_out -= sum(count for reason, count in drops.items() if reason in UNSENT)
            drops.clear()


def too_small_for_ipv6(mtu: int) -> str:
    """Return why IPv6 is refused when the tunnel carries packets of mtu bytes."""
    return f"the path carries packets of {mtu} bytes inside and IPv6 needs {MIN_IPV6_MTU} (RFC 8200 §5)"
