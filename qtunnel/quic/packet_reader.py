"""1-RTT packets of the peer: opened, told from duplicates, noted for the next ACK, and their frames read.

Runs of equal packets, which is what bulk data comes as, are opened at once (run_opening.py); others one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aioquic.quic.packet import QuicErrorCode, QuicFrameType

from qtunnel.packet_run import PacketRun, Packets, total_size
from qtunnel.quic.run_opening import RunOpener, equal_runs
from qtunnel.quic.seal_rows import TAG_SIZE

if TYPE_CHECKING:
    from qtunnel.quic._aioquic_plane import PlaneCore
    from qtunnel.quic.frame_reader import FrameReader
    from qtunnel.quic.key_phases import KeyPhases
    from qtunnel.quic.path import Path

__all__ = ["PacketReader"]

MIN_RUN: Final = 12
"""Equal packets from which on opening them at once is faster (docs/design/0008-packet-plane.md)."""
RESERVED_BITS: Final = 0x18


@dataclass(slots=True)
class _Heard:
    """What a burst has brought so far: packets that could be opened, and those of them that ask for an ACK."""

    opened: int = 0
    eliciting: int = 0
    out_of_order: bool = False


class PacketReader:
    """Of one path. cid_size: bytes of our connection ids. on_peer_moved: the peer's address is another now."""

    def __init__(
        self,
        core: PlaneCore,
        keys: KeyPhases,
        path: Path,
        frames: FrameReader,
        *,
        cid_size: int,
        on_peer_moved: Callable[[], None],
    ) -> None:
        self._core = core
        self._keys = keys
        self._path = path
        self._frames = frames
        self._cid_size = cid_size
        self._opener = RunOpener(cid_size)
        self._on_peer_moved = on_peer_moved
        self._shortest = 1 + cid_size + 4 + TAG_SIZE

    def receive(self, datagrams: Packets, addr: Any, now: float, ecn: int = 0) -> int:
        """Read short-header datagrams that came in together; return how many could be opened.

        One that cannot costs no other. addr: where they came from.
        """
        shortest = self._shortest
        if isinstance(datagrams, PacketRun):
            if datagrams.size < shortest:
                return 0
        elif min(map(len, datagrams)) < shortest:
            datagrams = [data for data in datagrams if len(data) >= shortest]
            if not datagrams:
                return 0
        core, path = self._core, self._path
        network = path.network if path.network.addr == addr else core.find_path(addr)
        heard = _Heard()
        if len(datagrams) < MIN_RUN or network is not core.active_path:
            self._read_each(datagrams, network, heard, now)
        else:
            for run in equal_runs(datagrams):
                if core.has_end:
                    break
                if len(run) < MIN_RUN or not self._read_run(PacketRun.of(run), network, heard, now):
                    self._read_each(run, network, heard, now)
        if heard.opened and not core.has_end:
            network.bytes_received += total_size(datagrams)
            core.restart_idle_timer(now, sent=False)
            received = path.received
            received.received(eliciting=heard.eliciting, out_of_order=heard.out_of_order, now=now)
            if ecn:
                received.count_ecn(ecn, heard.opened)
        return heard.opened

    def open_one(self, packet: bytes) -> tuple[bytes, bytes, int] | None:
        """Return (header, payload, number) of a packet that aioquic found behind a long-header one, or None.

        Its frames are read there.
        """
        if len(packet) < self._shortest:
            return None
        now = self._core.last_now
        opened = self._open(packet, *self._keys.receive.unmask([packet], self._cid_size)[0], now)
        if opened is None:
            return None
        self._frames.begin_packet()
        received = self._path.received
        late = received.add(opened[2], now)
        received.received(eliciting=1, out_of_order=late, now=now)
        return opened

    def _read_run(self, run: PacketRun, network: Any, heard: _Heard, now: float) -> bool:
        """Read packets of one size from the peer's active address; return False if they are no plain run."""
        received = self._path.received
        opened = self._keys.open_run(self._opener, run, received.largest + 1)
        if opened is None:
            return False
        heard.opened += len(run)
        if self._has_reserved_bits(opened.first_byte):
            return True
        for first, count in opened.stretches():
            if received.add_run(first, count, now):
                heard.out_of_order = True
        frames = self._frames
        if frames.read_datagrams(opened.payloads):
            heard.eliciting += len(run)
            return True
        for data, payload in zip(run, opened.payloads, strict=True):
            heard.eliciting += frames.read(payload, network, data[1 : 1 + self._cid_size], now)[0]
            if self._core.has_end:
                break
        return True

    def _read_each(self, datagrams: Packets, network: Any, heard: _Heard, now: float) -> None:
        core, received = self._core, self._path.received
        at = 1 + self._cid_size
        datagrams = list(datagrams)
        for data, unmasked in zip(datagrams, self._keys.receive.unmask(datagrams, self._cid_size), strict=True):
            opened = self._open(data, *unmasked, now)
            if opened is None:
                continue
            _, payload, number = opened
            heard.opened += 1
            if self._has_reserved_bits(unmasked[0]):
                return
            is_newest = number > received.largest
            if received.add(number, now):
                heard.out_of_order = True
            asks, probing = self._frames.read(payload, network, data[1:at], now)
            heard.eliciting += asks
            if network is not core.active_path and core.follow_peer(
                network, data[1:at], is_probing=probing, is_newest=is_newest
            ):
                self._on_peer_moved()
            if core.has_end:
                return

    def _open(
        self, data: bytes, first: int, truncated: int, bits: int, now: float
    ) -> tuple[bytes, bytes, int] | None:
        """Return (header, payload, number); None if it came before or cannot be opened. The rest: from unmask."""
        path = self._path
        number = _decode_number(truncated, bits, path.received.largest + 1)
        if number < 0 or not path.received.is_new(number):
            return None
        at = 1 + self._cid_size
        end = at + bits // 8
        header = b"%c%b%b" % (first, data[1:at], truncated.to_bytes(bits // 8))
        payload = self._keys.open(
            data[end:], header, number, first >> 2 & 1, now, path.recovery.pto(), path.next_number
        )
        return None if payload is None else (header, payload, number)

    def _has_reserved_bits(self, first: int) -> bool:
        """Close if bits are set that have to be zero (RFC 9000 §17.3.1)."""
        if not first & RESERVED_BITS:
            return False
        self._core.close(QuicErrorCode.PROTOCOL_VIOLATION, QuicFrameType.PADDING, "reserved bits are set")
        return True


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
