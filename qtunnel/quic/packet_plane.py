"""1-RTT packets in bursts, opened, acknowledged, recovered and sealed by us; most frames are still aioquic's.

    reader    short-header datagrams of one wake-up  ->  DATAGRAM payloads; ACKs to recovery; the rest to aioquic
    send      control packets, inner packets as the window and the pacer allow, an ACK, as batches for one sendmsg

A connection makes one when its handshake is confirmed. Handshake packets, and everything before, stay aioquic's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from aioquic.quic.packet import QuicErrorCode

from qtunnel.quic._aioquic_plane import ControlPacket, OneRttSecrets, acknowledge, lose
from qtunnel.quic.frame_reader import FrameReader
from qtunnel.quic.key_phases import KeyPhases
from qtunnel.quic.packet_protection import PACKET_NUMBER_SIZE
from qtunnel.quic.packet_reader import PacketReader
from qtunnel.quic.packet_writer import MAX_BATCH_BYTES, PacketWriter
from qtunnel.quic.path import Path
from qtunnel.quic.path_mtu import PathMtu
from qtunnel.quic.segmented_sends import GsoVerdict, SegmentedSends
from qtunnel.quic.sending_limit import SendingLimit, sending_limit
from qtunnel.quic.transmits import Batch
from qtunnel.recovery.congestion import make_congestion_control
from qtunnel.recovery.loss_recovery import LossRecovery

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtunnel.pmtud.config import PathMtuConfig
    from qtunnel.quic._aioquic_plane import PlaneCore
    from qtunnel.quic.packet_queue import PacketQueue
    from qtunnel.recovery.results import LossResult

__all__ = ["PacketPlane"]

logger = logging.getLogger(__name__)

MIN_PACER_STEP: Final = 0.0001
PTO_PROBES: Final = 2
"""Packets after a probe timeout, as many as RFC 9002 §6.2.4 allows: one alone is lost as easily as any other."""


class PacketPlane:
    """The plane of one connection, on path 0.

    The largest packet follows core.datagram_size.
    """

    def __init__(
        self,
        core: PlaneCore,
        secrets: OneRttSecrets,
        queue: PacketQueue,
        *,
        congestion_control: str,
        cid_size: int,
        update_after: int,
        seed: int = 0,
        path_mtu: PathMtuConfig | None = None,
        on_size: Callable[[int, float], None] = lambda size, now: None,
        gso_verdict: GsoVerdict | None = None,
    ) -> None:
        self.core = core
        self.queue = queue
        self.packets_lost = 0
        self.packets_discarded = 0
        self.last_loss: float | None = None
        self.segmented = SegmentedSends(GsoVerdict() if gso_verdict is None else gso_verdict, seed=seed)
        self.sends_singly = False
        self.keys = KeyPhases(
            secrets.cipher_suite,
            send_secret=secrets.send,
            receive_secret=secrets.receive,
            key_phase=secrets.key_phase,
            on_update=self._on_key_update,
            update_after=update_after,
        )
        recovery = LossRecovery(
            congestion=make_congestion_control(congestion_control, core.datagram_size, seed=seed),
            max_ack_delay=core.peer_max_ack_delay,
            initial_rtt=core.smoothed_rtt or 0.333,
            max_datagram_size=core.datagram_size,
        )
        if core.smoothed_rtt:
            recovery.rtt.update(core.smoothed_rtt, 0.0, core.last_now)
        self.path = Path(0, core.active_path, recovery)
        self.frames = FrameReader(core, self.path, self._on_ack)
        self.reader = PacketReader(
            core, self.keys, self.path, self.frames, cid_size=cid_size, on_peer_moved=self._on_peer_moved
        )
        ranges = core.hand_over(self._seal_one, self.reader.open_one, lambda: self.keys.send.key_phase)
        self.path.received.take_over(ranges, 0.0)
        self.path.next_number = self.path.first_number = core.next_packet_number
        self.writer = PacketWriter(core, self.keys, self.path, queue)
        self.path_mtu: PathMtu | None = None
        if path_mtu is not None:
            self.path_mtu = PathMtu(self.path, path_mtu, on_size=on_size, on_convicted=self._on_convicted)

    # -- receiving

    def _on_ack(self, ranges: list[tuple[int, int]], delay: float, now: float) -> None:
        result = self.path.recovery.on_ack_received(ranges, delay, now)
        self.keys.acknowledged(ranges[0][1])
        self.path.received.acknowledged(ranges)
        if result.acked_payloads:
            acknowledge(result.acked_payloads)
        if result.lost_runs:
            self._lost(result, now)
        if self.segmented.is_trying:
            self.segmented.judge(now, self.path.network.addr[0])
        if self.path_mtu is not None:
            self.path_mtu.on_ack(result, now)

    def _lost(self, result: LossResult, now: float) -> None:
        self.segmented.on_lost(result.lost_runs, now)
        self.packets_lost += result.lost
        self.last_loss = now
        if result.lost_payloads:
            lose(result.lost_payloads)
            self.core.is_control_waiting = True

    # -- sending

    def send(self, now: float) -> list[Batch]:
        """Return what may leave now, in order; each datagram by itself if sends_singly is set then."""
        core, path, keys = self.core, self.path, self.keys
        core.last_now = now
        batches: list[Batch] = []
        if keys.is_exhausted:
            core.close(QuicErrorCode.AEAD_LIMIT_REACHED, None, "the keys are used up")
            return batches
        keys.maybe_update(path.next_number, now, path.recovery.pto())
        path.network = core.active_path
        address = path.network.addr
        self.sends_singly = self.segmented.sends_singly(path.recovery.pto_count)
        first = path.next_number
        core.next_packet_number = path.next_number
        for data, where in core.write_probing(now):
            batches.append(Batch(data, where))
        size = self._write_mtu_probes(batches, address, now)
        if core.is_control_waiting:
            room = max(path.recovery.can_send(), size if self.writer.probes else 0)
            for control in core.write_control(path.network, now, room=room, size=size):
                batches.append(Batch(control.data, address))
                self._note_control(control, now)
        path.next_number = core.next_packet_number
        self.writer.write(batches, address, now)
        core.next_packet_number = path.next_number
        if self.segmented.is_trying:
            self.segmented.on_sent(path.recovery.runs_from(first), is_singly=self.sends_singly)
        return batches

    def _write_mtu_probes(self, batches: list[Batch], address: Any, now: float) -> int:
        """Send what path MTU discovery asks; return what no ordinary packet may exceed meanwhile."""
        path_mtu, path, core = self.path_mtu, self.path, self.core
        if path_mtu is None:
            return core.datagram_size
        if path.network.is_validated:
            path_mtu.write(batches, address, now, self.writer.write_padded, self.writer.room_for_numbers)
            core.next_packet_number = path.next_number
        self.writer.held_above = path_mtu.limit
        return core.datagram_size if path_mtu.limit is None else min(path_mtu.limit, core.datagram_size)

    def _note_control(self, control: ControlPacket, now: float) -> None:
        packet = control.packet
        self.path.recovery.on_packets_sent(
            control.number,
            1,
            len(control.data),
            now,
            ack_eliciting=packet.is_ack_eliciting,
            in_flight=packet.in_flight,
            payload=packet,
        )
        if packet.is_ack_eliciting:
            self.writer.probes = max(0, self.writer.probes - 1)
            self.writer.acks_alone = 0
            self.core.restart_idle_timer(now, sent=True)

    def _seal_one(self, header: bytes, payload: bytes, number: int) -> bytes:
        """Seal a packet that aioquic's builder made."""
        (sealed,) = self.keys.send.seal([payload], number, header[1:-PACKET_NUMBER_SIZE], spin=header[0] >> 5 & 1)
        return sealed

    def sending_limit(self, now: float) -> SendingLimit:
        """Return what keeps packets in the queue, to be asked after send."""
        network = self.path.network
        room = MAX_BATCH_BYTES if network.is_validated else network.bytes_received * 3 - network.bytes_sent
        return sending_limit(self.path, self.queue, now, room=room, last_loss=self.last_loss)

    # -- size and time

    def _on_convicted(self, size: int, now: float) -> list[int]:
        """Forget every packet larger than size, without a congestion signal; return the numbers of probes."""
        result = self.path.recovery.discard(larger_than=size)
        self.path.recovery.pacer.clear_debt(now)
        self.packets_discarded += result.discarded
        if result.payloads:
            lose(result.payloads)
            self.core.is_control_waiting = True
        return result.probes

    def set_datagram_size(self, size: int) -> None:
        """Follow the path's size."""
        self.path.recovery.set_max_datagram_size(size)

    def get_timer(self) -> float | None:
        """Return when handle_timer or send has something to do, seconds."""
        path = self.path
        times = [path.recovery.get_timer(), path.received.ack_at]
        if self.path_mtu is not None:
            times.append(self.path_mtu.get_timer())
        if self.queue.packets and path.recovery.can_send() > 0 and not self.writer.is_held:
            pacer_at = path.recovery.pacer.next_time(self.core.last_now, self.queue.bytes)
            if pacer_at is not None:
                # Rounding may leave the credit a hair short at that time; a step of its own ends that.
                times.append(max(pacer_at, self.core.last_now + MIN_PACER_STEP))
        return min((at for at in times if at is not None), default=None)

    def handle_timer(self, now: float) -> None:
        """Declare losses that time tells, and ask for a probe after a probe timeout."""
        recovery = self.path.recovery
        if self.path_mtu is not None:
            self.path_mtu.handle_timer(now)
        due = recovery.get_timer()
        if due is None or now < due:
            return
        result = recovery.on_timeout(now)
        if result.lost_runs:
            self._lost(result, now)
        if self.path_mtu is not None:
            self.path_mtu.on_timeout(result, now)
        if result.send_probe:
            self.writer.probes = PTO_PROBES
            if result.probe_payloads:
                lose(result.probe_payloads)
                self.core.is_control_waiting = True

    def on_stall(self, duration: float, now: float) -> None:
        """Excuse what was not heard for duration seconds up to now; call before what came meanwhile is read."""
        self.path.recovery.excuse_stall(duration)
        if self.path_mtu is not None:
            self.path_mtu.on_stall(now)

    def _on_key_update(self) -> None:
        logger.debug("key update %d", self.keys.updates)

    def _on_peer_moved(self) -> None:
        """Follow the client to its new address (RFC 9000 §9.4: a port alone keeps window and RTT)."""
        self.path.network = self.core.active_path
