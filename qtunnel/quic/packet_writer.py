"""1-RTT packets of our own: inner packets as window, pacer and packet numbers allow, probes, and ACKs.

Full inner packets of one size leave as a batch for one sendmsg, one to a QUIC packet; small ones share a packet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from qtunnel.quic.ack_frames import encode_ack
from qtunnel.quic.path import MAX_OUTSTANDING, Path
from qtunnel.quic.seal_rows import MAX_ROWS, PACKET_NUMBER_SIZE, TAG_SIZE
from qtunnel.quic.transmits import Batch

if TYPE_CHECKING:
    from qtunnel.quic._aioquic_plane import PlaneCore
    from qtunnel.quic.key_phases import KeyPhases
    from qtunnel.quic.packet_queue import PacketQueue

__all__ = ["PacketWriter"]

MAX_BATCH_PACKETS: Final = 64
MAX_BATCH_BYTES: Final = 65000
"""What one UDP_SEGMENT send takes, with room for headers below 64 KiB."""
NO_LIMIT: Final = 1 << 30
ACKS_BEFORE_PING: Final = 64
"""Packets with nothing but an ACK after which one asks for an ACK itself: in a one-way flow the peer has no other
reason to acknowledge them, and a record of each is kept (RFC 9000 §13.2.4)."""
ACK_AGAIN: Final = 0.25
"""Probe timeouts after which an ACK is sent once more beside other packets."""
MAX_ACK_DISTANCE: Final = 8192
"""Packet numbers above the oldest unacknowledged from which on no record is kept of packets with only an ACK: a
peer that never acknowledges must not make them pile up."""
MIN_PAYLOAD: Final = 2
"""Bytes of payload below which there is too little to sample (RFC 9001 §5.4.2), with two of packet number."""


class PacketWriter:
    """Of one path, which it numbers and tells what was sent. The largest packet follows core.datagram_size.

    probes: packets to send whatever the window says, after a probe timeout. acks_alone: packets with nothing but
    an ACK since the last that asked for one itself. held_above: bytes that no packet may exceed just now; None for
    the usual ones.
    """

    def __init__(self, core: PlaneCore, keys: KeyPhases, path: Path, queue: PacketQueue) -> None:
        self.acks_sent = 0
        self.probes = 0
        self.acks_alone = 0
        self.held_above: int | None = None
        self._ack_sent_at = float("-inf")
        self._core = core
        self._keys = keys
        self._path = path
        self._queue = queue
        self._head_size = 0
        self._follow_connection_id()

    def write(self, batches: list[Batch], address: Any, now: float) -> None:
        """Append what may leave now to batches, all to one address."""
        self._follow_connection_id()
        self._write_packets(batches, address, now)
        self._write_probes(batches, address, now)
        self._write_ack(batches, address, now)

    def _write_packets(self, batches: list[Batch], address: Any, now: float) -> None:
        """Seal what waits, as far as window, pacer and packet numbers go."""
        queue, path = self._queue, self._path
        queue.control_delay(now)
        budget = min(path.recovery.can_send(), path.recovery.pacer.budget(now, queue.bytes))
        # Probes may exceed the window (RFC 9002 §7.5).
        budget = min(max(budget, self.probes * self._core.datagram_size), self._address_room())
        largest = self.max_frame_payload
        sent = 0
        while queue.packets and not self._is_number_ambiguous() and not self.is_held:
            if 2 * queue.first_size > largest:
                size = self._write_full(batches, address, budget, now)
            else:
                size = self._write_small(batches, address, budget, now)
            if not size:
                break
            budget -= size
            sent += size
        if not queue.packets and path.recovery.can_send() > 0:
            path.recovery.on_app_limited()  # the window is not what holds us up
        if sent:
            self.probes = 0
            self.acks_alone = 0
            path.network.bytes_sent += sent
            self._core.restart_idle_timer(now, sent=True)

    def _write_full(self, batches: list[Batch], address: Any, budget: int, now: float) -> int:
        """Seal packets of one size, one to a QUIC packet, all that go out now at once; return the bytes sent."""
        queue, path = self._queue, self._path
        prefix = queue.prefix
        wire = self._head_size + 1 + len(prefix) + queue.first_size + TAG_SIZE
        most = min(MAX_ROWS, budget // wire, MAX_OUTSTANDING - self._distance())
        if most <= 0:
            return 0
        parts = queue.take_equal(most)
        count = sum(map(len, parts))
        sealed = self._keys.send.seal_equal(
            parts,
            b"\x30" + prefix,
            path.next_number,
            self._core.peer_cid,
            together=min(MAX_BATCH_PACKETS, max(1, MAX_BATCH_BYTES // wire)),
            spin=self._core.spin_bit,
        )
        batches += [Batch(data, address, wire if len(data) > wire else None) for data in sealed]
        path.recovery.on_packets_sent(path.next_number, count, wire, now)
        path.next_number += count
        return count * wire

    def _write_small(self, batches: list[Batch], address: Any, budget: int, now: float) -> int:
        """Seal one QUIC packet with as many small packets as wait and fit; return the bytes sent."""
        queue, path = self._queue, self._path
        prefix = queue.prefix
        largest = self._core.datagram_size if self.held_above is None else self.held_above
        room = min(largest, budget) - self._head_size - TAG_SIZE
        together: list[bytes] = []
        used = 0
        while queue.packets and queue.prefix == prefix:
            data = len(prefix) + queue.first_size
            # Which frame is the last, and needs no length, shows only afterwards: hence up to two bytes of slack.
            need = 1 + (1 if data < 64 else 2) + data
            if used + need > room:
                break
            together.append(queue.take())
            used += need
        if not together:
            return 0
        last = together.pop()
        frames = [_frame_with_length(prefix, packet) for packet in together]
        payload = b"%b\x30%b%b" % (b"".join(frames), prefix, last)
        (sealed,) = self._keys.send.seal(
            [payload], path.next_number, self._core.peer_cid, spin=self._core.spin_bit
        )
        batches.append(Batch(sealed, address))
        path.recovery.on_packets_sent(path.next_number, 1, len(sealed), now)
        path.next_number += 1
        return len(sealed)

    def _write_probes(self, batches: list[Batch], address: Any, now: float) -> None:
        """Send PINGs if a probe timeout asked for packets and nothing else was there (RFC 9002 §6.2.4)."""
        while self.probes:
            self.probes -= 1
            if self._address_room() < self._head_size + MIN_PAYLOAD + TAG_SIZE:
                continue  # the next timeout asks again, or the peer sends something
            self._write_alone(batches, address, b"\x01\x00", now, eliciting=True)

    def _write_ack(self, batches: list[Batch], address: Any, now: float) -> None:
        """Send an ACK that is due, or now and then once more beside other packets, as one may have been lost.

        Nobody acknowledges an ACK, so only repeating it helps a peer whose window is full (RFC 9000 §13.2.3).
        """
        received = self._path.received
        is_due = received.ack_at is not None and (received.ack_at <= now or batches)
        if not is_due:
            pto = self._path.recovery.pto()
            if not batches or now - received.asked_at >= 3 * pto or now - self._ack_sent_at < pto * ACK_AGAIN:
                return
        self._ack_sent_at = now
        ecn = received.ecn_counts if any(received.ecn_counts) else None
        delay = max(0.0, now - received.largest_time)
        frame = encode_ack(received.take_ranges(), delay, ecn=ecn)
        if self._address_room() < self._head_size + len(frame) + 1 + TAG_SIZE:
            return
        received.reported(self._path.next_number)
        self.acks_sent += 1
        self.acks_alone += 1
        asks = self.acks_alone >= ACKS_BEFORE_PING
        self._write_alone(batches, address, frame + b"\x01" if asks else frame, now, eliciting=asks)

    def _write_alone(
        self, batches: list[Batch], address: Any, payload: bytes, now: float, *, eliciting: bool
    ) -> None:
        path = self._path
        (sealed,) = self._keys.send.seal(
            [payload.ljust(MIN_PAYLOAD, b"\x00")], path.next_number, self._core.peer_cid, spin=self._core.spin_bit
        )
        if eliciting or self._distance() < MAX_ACK_DISTANCE:
            path.recovery.on_packets_sent(
                path.next_number, 1, len(sealed), now, ack_eliciting=eliciting, in_flight=eliciting
            )
        path.next_number += 1
        path.network.bytes_sent += len(sealed)
        if eliciting:
            self.acks_alone = 0
            self._core.restart_idle_timer(now, sent=True)
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

    @property
    def max_frame_payload(self) -> int:
        """Bytes of the largest DATAGRAM frame payload; the frame is the packet's last, so it has no length."""
        return self._core.datagram_size - (1 + len(self._core.peer_cid) + PACKET_NUMBER_SIZE) - TAG_SIZE - 1

    @property
    def is_held(self) -> bool:
        """Whether what waits first is too large to go just now."""
        queue = self._queue
        if self.held_above is None or not queue.packets:
            return False
        return self._head_size + 1 + len(queue.prefix) + queue.first_size + TAG_SIZE > self.held_above

    @property
    def room_for_numbers(self) -> int:
        """How many more packets may leave before two bytes of packet number would be ambiguous."""
        return MAX_OUTSTANDING - self._distance()

    def write_padded(
        self, batches: list[Batch], address: Any, size: int, now: float, *, is_mtu_probe: bool
    ) -> int:
        """Append PING and PADDING in a packet of exactly size bytes, alone; return its number (RFC 9000 §14.4)."""
        path = self._path
        number = path.next_number
        payload = b"\x01".ljust(size - self._head_size - TAG_SIZE, b"\x00")
        (sealed,) = self._keys.send.seal([payload], number, self._core.peer_cid, spin=self._core.spin_bit)
        path.recovery.on_packets_sent(number, 1, size, now, is_mtu_probe=is_mtu_probe)
        path.next_number += 1
        path.network.bytes_sent += size
        self._core.restart_idle_timer(now, sent=True)
        batches.append(Batch(sealed, address, is_alone=True))
        return number

    def _is_number_ambiguous(self) -> bool:
        return self._distance() >= MAX_OUTSTANDING

    def _distance(self) -> int:
        """Return how far the next packet number is above the oldest that is unacknowledged."""
        oldest = self._path.recovery.first_outstanding()
        return 0 if oldest is None else self._path.next_number - oldest

    def _address_room(self) -> int:
        """Return how many bytes may go to the active address: unvalidated, three times what came (RFC 9000 §8)."""
        network = self._path.network
        return NO_LIMIT if network.is_validated else network.bytes_received * 3 - network.bytes_sent

    def _follow_connection_id(self) -> None:
        """Note the size of the peer's connection id; drop packets that a longer one leaves no room for."""
        size = 1 + len(self._core.peer_cid) + PACKET_NUMBER_SIZE
        if size != self._head_size:
            self._head_size = size
            self._queue.drop_larger_than(self.max_frame_payload)


def _frame_with_length(prefix: bytes, packet: bytes) -> bytes:
    length = len(prefix) + len(packet)
    if length < 64:
        return b"\x31%c%b%b" % (length, prefix, packet)
    return b"\x31%b%b%b" % ((0x4000 | length).to_bytes(2), prefix, packet)
