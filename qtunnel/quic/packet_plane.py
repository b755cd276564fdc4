"""1-RTT packets in bursts, opened, acknowledged, recovered and sealed by us; most frames are still aioquic's.

    receive   short-header datagrams of one wake-up  ->  DATAGRAM payloads; ACKs to recovery; the rest to aioquic
    send      control packets, inner packets as the window and the pacer allow, an ACK, as batches for one sendmsg

A connection makes one when its handshake is confirmed. Handshake packets, and everything before, stay aioquic's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from aioquic.quic.packet import QuicErrorCode, QuicFrameType

from qtunnel.quic._aioquic_plane import ControlPacket, OneRttSecrets, acknowledge, lose
from qtunnel.quic.ack_frames import encode_ack
from qtunnel.quic.frame_reader import FrameReader
from qtunnel.quic.key_phases import KeyPhases
from qtunnel.quic.packet_protection import PACKET_NUMBER_SIZE, TAG_SIZE
from qtunnel.quic.path import MAX_OUTSTANDING, Path
from qtunnel.quic.transmits import Batch
from qtunnel.recovery.congestion import make_congestion_control
from qtunnel.recovery.loss_recovery import LossRecovery

if TYPE_CHECKING:
    from qtunnel.quic._aioquic_plane import PlaneCore
    from qtunnel.quic.packet_queue import PacketQueue

__all__ = ["PacketPlane"]

logger = logging.getLogger(__name__)

MAX_BATCH_PACKETS: Final = 64
MAX_BATCH_BYTES: Final = 65000
"""What one UDP_SEGMENT send takes, with room for headers below 64 KiB."""
MIN_PACER_STEP: Final = 0.0001
PTO_PROBES: Final = 2
"""Packets after a probe timeout, as many as RFC 9002 §6.2.4 allows: one alone is lost as easily as any other."""
ACKS_BEFORE_PING: Final = 64
"""Packets with nothing but an ACK after which one asks for an ACK itself: in a one-way flow the peer has no other
reason to acknowledge them, and a record of each is kept (RFC 9000 §13.2.4)."""
MAX_ACK_DISTANCE: Final = 8192
"""Packet numbers above the oldest unacknowledged from which on no record is kept of packets with only an ACK: a
peer that never acknowledges must not make them pile up."""
MIN_PAYLOAD: Final = 2
"""Bytes of payload below which there is too little to sample (RFC 9001 §5.4.2), with two of packet number."""


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
    ) -> None:
        self.core = core
        self.queue = queue
        self.packets_lost = 0
        self.acks_sent = 0
        self._cid_size = cid_size
        self._head_size = 0
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
        ranges = core.hand_over(self._seal_one, self._open_one, lambda: self.keys.send.key_phase)
        self.path.received.take_over(ranges, 0.0)
        self.path.next_number = self.path.first_number = core.next_packet_number
        self._probes = 0  # packets to send whatever the window says, after a probe timeout
        self._acks_alone = 0  # since the last packet that asked for an ACK
        self._follow_connection_id()

    # -- receiving

    def receive(self, datagrams: Sequence[bytes], addr: Any, now: float, ecn: int = 0) -> int:
        """Read short-header datagrams that came in together; return how many could be opened.

        One that cannot costs no other. addr: where they came from.
        """
        size = self._cid_size
        shortest = 1 + size + 4 + TAG_SIZE
        if min(map(len, datagrams)) < shortest:
            datagrams = [data for data in datagrams if len(data) >= shortest]
            if not datagrams:
                return 0
        path = self.path
        received = path.received
        keys, core = self.keys, self.core
        network = path.network if path.network.addr == addr else core.find_path(addr)
        at = 1 + size
        read = self.frames.read
        opened = eliciting = 0
        out_of_order = False
        pto = path.recovery.pto()
        for data, (first, truncated, bits) in zip(datagrams, keys.receive.unmask(datagrams, size), strict=True):
            number = _decode_number(truncated, bits, received.largest + 1)
            if number < 0 or not received.is_new(number):
                continue
            end = at + bits // 8
            header = b"%c%b%b" % (first, data[1:at], truncated.to_bytes(bits // 8))
            payload = keys.open(data[end:], header, number, first >> 2 & 1, now, pto, path.next_number)
            if payload is None:
                continue
            opened += 1
            if first & 0x18:
                core.close(QuicErrorCode.PROTOCOL_VIOLATION, QuicFrameType.PADDING, "reserved bits are set")
                return opened
            is_newest = number > received.largest
            if received.add(number, now):
                out_of_order = True
            asks, probing = read(payload, network, data[1:at], now)
            eliciting += asks
            if network is not core.active_path and core.follow_peer(
                network, data[1:at], is_probing=probing, is_newest=is_newest
            ):
                self._on_peer_moved()
            if core.has_end:
                return opened
        if opened:
            network.bytes_received += sum(map(len, datagrams))
            core.restart_idle_timer(now, sent=False)
            received.received(eliciting=eliciting, out_of_order=out_of_order, now=now)
            if ecn:
                received.count_ecn(ecn, opened)
        return opened

    def _on_ack(self, ranges: list[tuple[int, int]], delay: float, now: float) -> None:
        result = self.path.recovery.on_ack_received(ranges, delay, now)
        self.keys.acknowledged(ranges[0][1])
        if result.acked_payloads:
            acknowledge(result.acked_payloads)
        self._lost(result.lost_payloads, result.lost)

    def _lost(self, payloads: list[Any], count: int) -> None:
        self.packets_lost += count
        if payloads:
            lose(payloads)
            self.core.is_control_waiting = True

    # -- sending

    def send(self, now: float) -> list[Batch]:
        """Return what may leave now, in order."""
        core, path, keys = self.core, self.path, self.keys
        core.last_now = now
        batches: list[Batch] = []
        if keys.is_exhausted:
            core.close(QuicErrorCode.AEAD_LIMIT_REACHED, None, "the keys are used up")
            return batches
        keys.maybe_update(path.next_number, now, path.recovery.pto())
        path.network = core.active_path
        address = path.network.addr
        core.next_packet_number = path.next_number
        for data, where in core.write_probing(now):
            batches.append(Batch(data, where))
        if core.is_control_waiting:
            room = max(path.recovery.can_send(), core.datagram_size if self._probes else 0)
            for control in core.write_control(path.network, now, room=room, size=core.datagram_size):
                batches.append(Batch(control.data, address))
                self._note_control(control, now)
        path.next_number = core.next_packet_number
        self._follow_connection_id()
        self._send_packets(batches, address, now)
        self._send_probe(batches, address, now)
        self._send_ack(batches, address, now)
        core.next_packet_number = path.next_number
        return batches

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
            self._probes = max(0, self._probes - 1)
            self._acks_alone = 0
            self.core.restart_idle_timer(now, sent=True)

    def _send_packets(self, batches: list[Batch], address: Any, now: float) -> None:
        """Seal what waits, as far as window, pacer and packet numbers go."""
        queue, path = self.queue, self.path
        queue.control_delay(now)
        budget = min(path.recovery.can_send(), path.recovery.pacer.budget(now))
        # Probes may exceed the window (RFC 9002 §7.5).
        budget = min(max(budget, self._probes * self.core.datagram_size), self._address_room())
        largest = self.max_frame_payload
        sent = 0
        while queue.packets and not self._is_number_ambiguous():
            if 2 * len(queue.packets[0]) > largest:
                size = self._send_full(batches, address, budget, now)
            else:
                size = self._send_small(batches, address, budget, now)
            if not size:
                break
            budget -= size
            sent += size
        if not queue.packets and path.recovery.can_send() > 0:
            path.recovery.on_app_limited()  # the window is not what holds us up
        if sent:
            self._probes = 0
            self._acks_alone = 0
            path.network.bytes_sent += sent
            self.core.restart_idle_timer(now, sent=True)

    def _send_full(self, batches: list[Batch], address: Any, budget: int, now: float) -> int:
        """Seal a run of packets of one size, one to a QUIC packet; return the bytes sent."""
        queue, path = self.queue, self.path
        packets = queue.packets
        prefix, available = queue.head()
        length = len(packets[0])
        wire = self._head_size + 1 + len(prefix) + length + TAG_SIZE
        most = min(MAX_BATCH_PACKETS, max(1, MAX_BATCH_BYTES // wire), budget // wire, available)
        if most <= 0:
            return 0
        run: list[bytes] = []
        for packet in packets:
            if len(packet) != length or len(run) == most:
                break
            run.append(packet)
        for _ in run:
            packets.popleft()
        count = len(run)
        queue.taken(count, count * length)
        data = self.keys.send.seal_equal(
            run, b"\x30" + prefix, path.next_number, self.core.peer_cid, spin=self.core.spin_bit
        )
        batches.append(Batch(data, address, wire if count > 1 else None))
        path.recovery.on_packets_sent(path.next_number, count, wire, now)
        path.next_number += count
        return len(data)

    def _send_small(self, batches: list[Batch], address: Any, budget: int, now: float) -> int:
        """Seal one QUIC packet with as many small packets as wait and fit; return the bytes sent."""
        queue, path = self.queue, self.path
        packets = queue.packets
        prefix, available = queue.head()
        room = min(self.max_frame_payload + 1, budget - self._head_size - TAG_SIZE)
        together: list[bytes] = []
        used = taken_bytes = 0
        while len(together) < available:
            data = len(prefix) + len(packets[0])
            # Which frame is the last, and needs no length, shows only afterwards: hence up to two bytes of slack.
            need = 1 + (1 if data < 64 else 2) + data
            if used + need > room:
                break
            together.append(packets.popleft())
            used += need
            taken_bytes += len(together[-1])
        if not together:
            return 0
        queue.taken(len(together), taken_bytes)
        last = together.pop()
        frames = [_frame_with_length(prefix, packet) for packet in together]
        payload = b"%b\x30%b%b" % (b"".join(frames), prefix, last)
        (sealed,) = self.keys.send.seal([payload], path.next_number, self.core.peer_cid, spin=self.core.spin_bit)
        batches.append(Batch(sealed, address))
        path.recovery.on_packets_sent(path.next_number, 1, len(sealed), now)
        path.next_number += 1
        return len(sealed)

    def _send_probe(self, batches: list[Batch], address: Any, now: float) -> None:
        """Send PINGs if a probe timeout asked for packets and nothing else was there (RFC 9002 §6.2.4)."""
        while self._probes:
            self._probes -= 1
            if self._address_room() < self._head_size + MIN_PAYLOAD + TAG_SIZE:
                continue  # the next timeout asks again, or the peer sends something
            self._send_alone(batches, address, b"\x01\x00", now, eliciting=True)

    def _send_ack(self, batches: list[Batch], address: Any, now: float) -> None:
        """Send an ACK that is due, or once more beside other packets, as the last one may have been lost.

        Nobody acknowledges an ACK, so only repeating it helps a peer whose window is full (RFC 9000 §13.2.3).
        """
        received = self.path.received
        is_due = received.ack_at is not None and (received.ack_at <= now or batches)
        is_recent = now - received.asked_at < 3 * self.path.recovery.pto()
        if not is_due and not (batches and is_recent):
            return
        ecn = received.ecn_counts if any(received.ecn_counts) else None
        delay = max(0.0, now - received.largest_time)
        frame = encode_ack(received.take_ranges(), delay, ecn=ecn)
        if self._address_room() < self._head_size + len(frame) + 1 + TAG_SIZE:
            return
        self.acks_sent += 1
        self._acks_alone += 1
        asks = self._acks_alone >= ACKS_BEFORE_PING
        self._send_alone(batches, address, frame + b"\x01" if asks else frame, now, eliciting=asks)

    def _send_alone(
        self, batches: list[Batch], address: Any, payload: bytes, now: float, *, eliciting: bool
    ) -> None:
        path = self.path
        (sealed,) = self.keys.send.seal(
            [payload.ljust(MIN_PAYLOAD, b"\x00")], path.next_number, self.core.peer_cid, spin=self.core.spin_bit
        )
        if eliciting or self._distance() < MAX_ACK_DISTANCE:
            path.recovery.on_packets_sent(
                path.next_number, 1, len(sealed), now, ack_eliciting=eliciting, in_flight=eliciting
            )
        path.next_number += 1
        path.network.bytes_sent += len(sealed)
        if eliciting:
            self._acks_alone = 0
            self.core.restart_idle_timer(now, sent=True)
        last = batches[-1] if batches else None
        if (
            last is not None
            and last.segment_size is not None
            and last.address == address
            and not len(last.data) % last.segment_size
            and len(sealed) < last.segment_size
            and len(last.data) // last.segment_size < MAX_BATCH_PACKETS
        ):
            last.data += sealed
        else:
            batches.append(Batch(sealed, address))

    def _seal_one(self, header: bytes, payload: bytes, number: int) -> bytes:
        """Seal a packet that aioquic's builder made."""
        (sealed,) = self.keys.send.seal([payload], number, header[1:-PACKET_NUMBER_SIZE], spin=header[0] >> 5 & 1)
        return sealed

    def _open_one(self, packet: bytes) -> tuple[bytes, bytes, int] | None:
        """Open a packet that aioquic found behind a long-header one; its frames are read there."""
        size = self._cid_size
        at = 1 + size
        if len(packet) < at + 4 + TAG_SIZE:
            return None
        received, now = self.path.received, self.core.last_now
        ((first, truncated, bits),) = self.keys.receive.unmask([packet], size)
        number = _decode_number(truncated, bits, received.largest + 1)
        if number < 0 or not received.is_new(number):
            return None
        end = at + bits // 8
        header = b"%c%b%b" % (first, packet[1:at], truncated.to_bytes(bits // 8))
        pto = self.path.recovery.pto()
        payload = self.keys.open(packet[end:], header, number, first >> 2 & 1, now, pto, self.path.next_number)
        if payload is None:
            return None
        self.frames.begin_packet()
        late = received.add(number, now)
        received.received(eliciting=1, out_of_order=late, now=now)
        return header, payload, number

    # -- sizes and time

    @property
    def max_frame_payload(self) -> int:
        """Bytes of the largest DATAGRAM frame payload; the frame is the packet's last, so it has no length."""
        return self.core.datagram_size - (1 + len(self.core.peer_cid) + PACKET_NUMBER_SIZE) - TAG_SIZE - 1

    def set_datagram_size(self, size: int) -> None:
        """Follow the path's size."""
        self.path.recovery.set_max_datagram_size(size)

    def get_timer(self) -> float | None:
        """Return when handle_timer or send has something to do, seconds."""
        path = self.path
        times = [path.recovery.get_timer(), path.received.ack_at]
        if self.queue.packets and path.recovery.can_send() > 0:
            pacer_at = path.recovery.pacer.next_time(self.core.last_now)
            if pacer_at is not None:
                # Rounding may leave the credit a hair short at that time; a step of its own ends that.
                times.append(max(pacer_at, self.core.last_now + MIN_PACER_STEP))
        return min((at for at in times if at is not None), default=None)

    def handle_timer(self, now: float) -> None:
        """Declare losses that time tells, and ask for a probe after a probe timeout."""
        recovery = self.path.recovery
        due = recovery.get_timer()
        if due is None or now < due:
            return
        result = recovery.on_timeout(now)
        self._lost(result.lost_payloads, result.lost)
        if result.send_probe:
            self._probes = PTO_PROBES
            if result.probe_payloads:
                lose(result.probe_payloads)
                self.core.is_control_waiting = True

    def _is_number_ambiguous(self) -> bool:
        return self._distance() >= MAX_OUTSTANDING

    def _distance(self) -> int:
        """Return how far the next packet number is above the oldest that is unacknowledged."""
        oldest = self.path.recovery.first_outstanding()
        return 0 if oldest is None else self.path.next_number - oldest

    def _address_room(self) -> int:
        """Return how many bytes may go to the active address: unvalidated, three times what came (RFC 9000 §8)."""
        network = self.path.network
        return MAX_BATCH_BYTES if network.is_validated else network.bytes_received * 3 - network.bytes_sent

    def _follow_connection_id(self) -> None:
        """Note the size of the peer's connection id; drop packets that a longer one leaves no room for."""
        size = 1 + len(self.core.peer_cid) + PACKET_NUMBER_SIZE
        if size != self._head_size:
            self._head_size = size
            self.queue.drop_larger_than(self.max_frame_payload)

    def _on_key_update(self) -> None:
        logger.debug("key update %d", self.keys.updates)

    def _on_peer_moved(self) -> None:
        """Follow the client to its new address (RFC 9000 §9.4: a port alone keeps window and RTT)."""
        self.path.network = self.core.active_path


def _decode_number(truncated: int, bits: int, expected: int) -> int:
    """Return the full packet number (RFC 9000 §A.3)."""
    window = 1 << bits
    half = window >> 1
    candidate = (expected & ~(window - 1)) | truncated
    if candidate <= expected - half and candidate < (1 << 62) - window:
        return candidate + window
    if candidate > expected + half and candidate >= window:
        return candidate - window
    return candidate


def _frame_with_length(prefix: bytes, packet: bytes) -> bytes:
    length = len(prefix) + len(packet)
    if length < 64:
        return b"\x31%c%b%b" % (length, prefix, packet)
    return b"\x31%b%b%b" % ((0x4000 | length).to_bytes(2), prefix, packet)
