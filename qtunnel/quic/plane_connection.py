"""A connection whose 1-RTT packets are the packet plane's from the moment the handshake is confirmed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from qtunnel.drops import DropCounts, DropReason
from qtunnel.packet_run import PacketRun, Packets, total_size
from qtunnel.pmtud.sizes import udp_payload
from qtunnel.quic.connection import CID_SIZE, Connection
from qtunnel.quic.events import CloseCause
from qtunnel.quic.packet_plane import PacketPlane
from qtunnel.quic.packet_queue import PacketQueue
from qtunnel.quic.path_mtu import path_mtu_config
from qtunnel.quic.sending_limit import SendingLimit
from qtunnel.quic.transmits import Batch

if TYPE_CHECKING:
    from qtunnel.burst import Address
    from qtunnel.pmtud.discovery import PathMtuDiscovery
    from qtunnel.quic.stats import ConnectionStats
    from qtunnel.recovery.size_counts import SizeCounts

__all__ = ["PlaneConnection"]

logger = logging.getLogger(__name__)

MAX_QUEUE_BYTES: Final = 1024 * 1024
"""Of inner packets waiting in one connection."""


class PlaneConnection(Connection):
    """As Connection, with bursts underneath. plane: None until the handshake is confirmed.

    size_changed: packets have had another size since whoever wants to know set it back.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.plane: PacketPlane | None = None
        self.size_changed = False
        self._returned: list[tuple[bytes, Packets]] = []
        self._packets = PacketQueue(
            DropCounts(),
            max_packets=self._settings.queue_packets,
            max_bytes=MAX_QUEUE_BYTES,
            max_delay=self._settings.queue_delay,
        )

    # -- bytes in

    def receive_datagrams(self, datagrams: Packets, addr: Address, now: float, ecn: int = 0) -> None:
        """Read UDP payloads that came in together from one address, whatever they hold."""
        self.last_now = now
        plane = self.plane
        if plane is None:
            for at, data in enumerate(datagrams):
                self.receive_datagram(data, addr, now)
                if self.plane is not None:
                    self.receive_datagrams(datagrams[at + 1 :], addr, now, ecn)
                    return
            return
        known = self.known_cids
        if isinstance(datagrams, PacketRun) and datagrams.size > CID_SIZE:
            cid = datagrams[0][1 : 1 + CID_SIZE]
            if cid in known and max(datagrams.column(0)) < 0x80 and datagrams.without(1).all_begin_with(cid):
                if not self.is_ending:
                    self._receive_burst(plane, datagrams, addr, now, ecn)
                return
        ours = [data for data in datagrams if data and data[0] < 0x80 and data[1 : 1 + CID_SIZE] in known]
        if len(ours) < len(datagrams):
            for data in datagrams:
                if not data or data[0] >= 0x80 or data[1 : 1 + CID_SIZE] not in known:
                    self.receive_datagram(data, addr, now)
        if ours and not self.is_ending:
            self._receive_burst(plane, ours, addr, now, ecn)

    def receive_datagram(self, data: bytes, addr: Address, now: float) -> None:
        """Read one UDP payload that is not the plane's, whatever it holds."""
        self.last_now = now
        super().receive_datagram(data, addr, now)
        self.stop_own_acks()

    def _receive_burst(self, plane: PacketPlane, datagrams: Packets, addr: Address, now: float, ecn: int) -> None:
        if self.configuration.is_client and addr not in self.peer_addresses:
            return  # RFC 9000 §9: a server does not move by itself
        self._bytes_received += total_size(datagrams)
        self._datagrams_received += len(datagrams)
        self.set_log_time(now)
        opened = 0
        try:
            opened = plane.reader.receive(datagrams, addr, now, ecn)
        except Exception:  # aioquic reads most frames, see Connection.receive_datagram
            self._fail_internally()
        if opened:
            if self._settings.keep_alive is not None:
                self._keep_alive_at = now + self._settings.keep_alive
        elif any(self._is_stateless_reset(data) for data in datagrams):
            self.terminate()
            self._report(CloseCause.STATELESS_RESET, 0, False, "the peer no longer knows the connection")
        if self.closed_by_peer:
            self._report_termination(CloseCause.PEER)

    def take_datagrams(self) -> list[Packets]:
        """Return payloads of DATAGRAM frames received since the last call, in groups."""
        return [] if self.plane is None else self.plane.frames.take_datagrams()

    def on_ack(self, ranges: list[tuple[int, int]], delay: float, now: float) -> None:
        """Give the plane an ACK that stood behind frames aioquic reads."""
        if self.plane is not None:
            self.plane.frames.on_ack(ranges, delay, now)

    def on_handshake_confirmed(self) -> None:
        """Take over from aioquic."""
        if self.is_ending:
            return
        secrets = self.one_rtt_secrets()
        if secrets is None:
            return
        path_mtu = None
        if self._settings.path_mtu is not None:
            is_ipv6 = ":" in self.peer_addresses[0][0]
            path_mtu = path_mtu_config(self._settings.path_mtu, is_ipv6=is_ipv6, peer_limit=self._peer_udp_payload)
            self.datagram_size = path_mtu.base
        self.plane = PacketPlane(
            self,
            secrets,
            self._packets,
            congestion_control=self._settings.congestion_control,
            cid_size=CID_SIZE,
            update_after=self._settings.key_update_after,
            seed=int.from_bytes(self._settings.random_bytes(4)),
            path_mtu=path_mtu,
            on_size=self._on_path_size,
            gso_verdict=self._settings.gso_verdict,
        )
        if self.plane.path_mtu is not None:
            self.plane.path_mtu.confirm(self.last_now)

    def _on_path_size(self, size: int, now: float) -> None:
        """Follow the path: what waits and no longer fits goes back to where it came from."""
        del now
        if self.plane is None:
            return
        self.datagram_size = size
        self.plane.set_datagram_size(size)
        self._returned += self._packets.take_larger_than(self.max_datagram_payload)
        self.size_changed = True

    def on_packet_too_big(self, mtu: int, quoted: bytes, now: float) -> None:
        """Take an ICMP message about a datagram that begins with quoted, if it is ours (RFC 9000 §14.2.1)."""
        plane = self.plane
        if plane is None or self.is_ending or plane.path_mtu is None:
            return
        size = udp_payload(mtu, 6 if ":" in self.peer_addresses[0][0] else 4)
        cid = self.peer_cid
        is_ours = quoted[1 : 1 + len(cid)] == cid and len(quoted) > len(cid)
        plane.path_mtu.on_ptb(size if is_ours else 0, now)

    @property
    def path_mtu(self) -> PathMtuDiscovery | None:
        """What is known of the path's MTU; None: it was told, or nothing is known yet."""
        if self.plane is None or self.plane.path_mtu is None:
            return None
        return self.plane.path_mtu.discovery

    @property
    def size_counts(self) -> SizeCounts | None:
        """Packets by size; None: not yet."""
        return None if self.plane is None else self.plane.path.recovery.size_counts

    def take_returned(self) -> list[tuple[bytes, Packets]]:
        """Return packets that were queued and no longer fit the path, as (prefix, packets), each once."""
        returned, self._returned = self._returned, []
        return returned

    def on_stall(self, duration: float, now: float) -> None:
        """Take note that this process slept: what it did not hear meanwhile is not the path's fault."""
        if self.plane is not None and not self.is_ending:
            self.plane.on_stall(duration, now)

    def on_refused(self, size: int, now: float) -> None:
        """Take note that this host's kernel refused a datagram of size bytes (EMSGSIZE)."""
        if self.plane is not None and not self.is_ending and self.plane.path_mtu is not None:
            self.plane.path_mtu.on_refused(size, now)

    # -- bytes out

    def batches_to_send(self, now: float) -> list[Batch]:
        """Return what to send now, in order; call get_timer() afterwards."""
        plane = self.plane
        if plane is None or self.closed is not None or self.is_ending:
            return super().batches_to_send(now)
        self.set_log_time(now)
        self.challenge_written = False
        try:
            batches = plane.send(now)
            if self.is_close_pending:  # by what was sent: a key that is used up
                batches += super().batches_to_send(now)
        except Exception:  # in silence: CONNECTION_CLOSE might take a packet number that is used already
            self._fail_internally()
            self.terminate()
            batches = []
        if plane.sends_singly:
            batches = [Batch(data, batch.address) for batch in batches for data in batch.datagrams()]
        for batch in batches:
            self._bytes_sent += len(batch.data)
            size = batch.segment_size or len(batch.data) or 1
            self._datagrams_sent += -(-len(batch.data) // size)
        return batches

    @property
    def joins_datagrams(self) -> bool:
        """Whether what batches_to_send returned may be joined to segmented sends."""
        return self.plane is not None and not (self.plane.sends_singly or self.challenge_written)

    @property
    def has_given_up_gso(self) -> bool:
        """Whether the peer lost what was sent segmented, so that nothing is any more."""
        return self.plane is not None and self.plane.segmented.is_off

    def queue_packets(self, prefix: bytes, packets: Packets, now: float) -> DropCounts:
        """Queue a burst of inner packets, each to be sent behind prefix; return what was dropped at once."""
        if self.plane is None:
            return super().queue_packets(prefix, packets, now)
        return self._packets.push(prefix, packets, largest=self.max_datagram_payload - len(prefix), now=now)

    @property
    def has_room_for_read(self) -> bool:
        """Whether the queue takes all that one read of the TUN gives."""
        return super().has_room_for_read if self.plane is None else self._packets.has_room_for_read

    def count_drops_in(self, drops: DropCounts) -> None:
        """Count dropped packets there."""
        super().count_drops_in(drops)
        self._packets.drops = drops

    @property
    def max_datagram_payload(self) -> int:
        """Bytes of the largest DATAGRAM frame payload that can be sent now; 0 before the peer allows any."""
        if self.plane is None:
            return super().max_datagram_payload
        return max(0, min(self.plane.writer.max_frame_payload, self.peer_max_datagram_frame_size - 3))

    def set_max_udp_payload(self, size: int) -> None:
        """Take another size of the path, bytes; packets in the queue that no longer fit are dropped, counted."""
        if self._settings.path_mtu is not None:
            return  # it is found by probing
        super().set_max_udp_payload(size)
        if self.plane is not None:
            self.plane.set_datagram_size(self.datagram_size)
            self._packets.drop_larger_than(self.max_datagram_payload)

    def sending_limit(self, now: float) -> SendingLimit:
        """Return what keeps inner packets from leaving."""
        return SendingLimit.NOTHING if self.plane is None else self.plane.sending_limit(now)

    # -- time

    def get_timer(self) -> float | None:
        """Return when handle_timer is due, seconds; None: never."""
        at = super().get_timer()
        if self.plane is None or self.is_ending:
            return at
        plane_at = self.plane.get_timer()
        if plane_at is None:
            return at
        return plane_at if at is None else min(at, plane_at)

    def handle_timer(self, now: float) -> None:
        """Do what is due; call batches_to_send and get_timer afterwards."""
        super().handle_timer(now)
        if self.plane is not None and not self.is_ending:
            try:
                self.plane.handle_timer(now)
            except Exception:  # aioquic's handlers of lost frames run there, too
                self._fail_internally()

    # -- numbers

    @property
    def smoothed_rtt(self) -> float:
        """Seconds; 0.0 before the first sample."""
        return super().smoothed_rtt if self.plane is None else self.plane.path.recovery.smoothed_rtt

    @property
    def congestion_window(self) -> int:
        """Bytes."""
        return (
            super().congestion_window
            if self.plane is None
            else self.plane.path.recovery.congestion.congestion_window
        )

    @property
    def bytes_in_flight(self) -> int:
        """Bytes."""
        return super().bytes_in_flight if self.plane is None else self.plane.path.recovery.bytes_in_flight

    def stats(self) -> ConnectionStats:
        """Return a snapshot of the numbers."""
        stats = super().stats()
        if self.plane is None:
            return stats
        lost = stats.lost + self.plane.packets_lost
        queued, updates = self._packets.packets, self.plane.keys.updates
        return stats.replaced(lost=lost, queued=queued, key_updates=updates)

    def on_closed(self) -> None:
        """Drop what waits to be sent."""
        super().on_closed()
        self._packets.clear(DropReason.NO_SESSION)
        for _, packets in self.take_returned():
            self._packets.drops[DropReason.NO_SESSION] += len(packets)
