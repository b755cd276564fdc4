"""Sealing and opening bursts of 1-RTT packets (RFC 9001 §5), for AES-128, AES-256 and ChaCha20.

A burst costs one header-protection call (AES: one ECB call over all samples) and one AEAD call per packet. From
VECTOR_MIN packets of equal size on, headers, nonces and masks are made by numpy over a two-dimensional array whose
rows are the packets, so that the array is what a segmented send takes. Below, and for odd sizes, plain Python is
faster. Both give the same bytes (tests/unit/quic/test_packet_protection.py).

The nonce is the packet number, with the path id above it, exclusive-or the IV (RFC 9001 §5.3, RFC 10069 §2.4);
path 0 is plain QUIC version 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from aioquic.quic.crypto import derive_key_iv_hp
from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite, cipher_suite_hash, hkdf_expand_label
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

__all__ = ["PACKET_NUMBER_SIZE", "TAG_SIZE", "HeaderMask", "PacketKeys"]

TAG_SIZE: Final = 16
PACKET_NUMBER_SIZE: Final = 2
"""Bytes of the packet number we send, always: at most 2^15 packets may be unacknowledged (RFC 9000 §A.2)."""
SAMPLE_SIZE: Final = 16
VECTOR_MIN: Final = 8
"""Packets from which on numpy's fixed cost pays (docs/design/0008-packet-plane.md)."""
MAX_CACHED_LAYOUTS: Final = 8


class HeaderMask:
    """Header protection masks for a burst (RFC 9001 §5.4). The key stays the same across key updates (§6.1)."""

    def __init__(self, cipher_suite: CipherSuite, key: bytes) -> None:
        self._chacha_key = key if cipher_suite is CipherSuite.CHACHA20_POLY1305_SHA256 else None
        self._ecb: Any = None if self._chacha_key else Cipher(algorithms.AES(key), modes.ECB()).encryptor()

    def masks(self, samples: bytes) -> bytes:
        """Return 16 bytes a sample, of which the first 5 are the mask. samples: 16 bytes each, back to back."""
        if self._chacha_key is None:
            masks: bytes = self._ecb.update(samples)
            return masks
        return b"".join(
            self._chacha_mask(samples[at : at + SAMPLE_SIZE]) for at in range(0, len(samples), SAMPLE_SIZE)
        )

    def _chacha_mask(self, sample: bytes) -> bytes:
        assert self._chacha_key is not None
        # RFC 9001 §5.4.4: counter and nonce are the sample, which is how the library wants its nonce, too.
        encryptor = Cipher(algorithms.ChaCha20(self._chacha_key, sample), mode=None).encryptor()
        return encryptor.update(bytes(SAMPLE_SIZE))


class PacketKeys:
    """One direction's keys of one key phase.

    update() gives the next phase's; the header protection key goes along. iv: as a number. sealed and failed count
    towards the limits of RFC 9001 §6.6.
    """

    def __init__(
        self, cipher_suite: CipherSuite, secret: bytes, *, key_phase: int = 0, mask: HeaderMask | None = None
    ) -> None:
        key, iv, header_key = derive_key_iv_hp(
            cipher_suite=cipher_suite, secret=secret, version=QuicProtocolVersion.VERSION_1
        )
        self.cipher_suite = cipher_suite
        self.key_phase = key_phase
        self.mask = HeaderMask(cipher_suite, header_key) if mask is None else mask
        self.sealed = 0
        self.failed = 0
        self._secret = secret
        self._aead: Any = (
            ChaCha20Poly1305(key) if cipher_suite is CipherSuite.CHACHA20_POLY1305_SHA256 else AESGCM(key)
        )
        self.iv = int.from_bytes(iv)
        self._layouts: dict[tuple[int, int, int], _Layout] = {}

    def update(self) -> PacketKeys:
        """Return the keys of the next phase (RFC 9001 §6.1)."""
        algorithm = cipher_suite_hash(self.cipher_suite)
        secret = hkdf_expand_label(algorithm, self._secret, b"quic ku", b"", algorithm.digest_size)
        return PacketKeys(self.cipher_suite, secret, key_phase=1 - self.key_phase, mask=self.mask)

    # -- sealing

    def seal(
        self, payloads: Sequence[bytes], first: int, connection_id: bytes, *, path_id: int = 0, spin: int = 0
    ) -> list[bytes]:
        """Return one packet for each payload, numbered from first. A payload has at least 2 bytes (§5.4.2)."""
        head = bytes((0x40 | spin << 5 | self.key_phase << 2 | (PACKET_NUMBER_SIZE - 1),)) + connection_id
        bias = self.iv ^ path_id << 64
        encrypt = self._aead.encrypt
        numbers = range(first, first + len(payloads))
        headers = [b"%b%b" % (head, (number & 0xFFFF).to_bytes(2)) for number in numbers]
        bodies = [
            encrypt((bias ^ number).to_bytes(12), payload, header)
            for number, payload, header in zip(numbers, payloads, headers, strict=True)
        ]
        # The sample starts 4 bytes after the start of the packet number (§5.4.2).
        masks = self.mask.masks(b"".join([body[2:18] for body in bodies]))
        at = 1 + len(connection_id)
        packets = []
        for header, body, offset in zip(headers, bodies, range(0, len(masks), SAMPLE_SIZE), strict=True):
            packets.append(
                b"%c%b%c%c%b"
                % (
                    header[0] ^ masks[offset] & 0x1F,
                    connection_id,
                    header[at] ^ masks[offset + 1],
                    header[at + 1] ^ masks[offset + 2],
                    body,
                )
            )
        self.sealed += len(packets)
        return packets

    def seal_equal(
        self,
        packets: Sequence[bytes],
        prefix: bytes,
        first: int,
        connection_id: bytes,
        *,
        path_id: int = 0,
        spin: int = 0,
    ) -> bytes:
        """Return packets of one size, back to back: each payload is prefix + packet, and all have one length."""
        count, size = len(packets), len(packets[0])
        if count < VECTOR_MIN:
            payloads = [prefix + packet for packet in packets]
            return b"".join(self.seal(payloads, first, connection_id, path_id=path_id, spin=spin))
        layout = self._layout(count, size + len(prefix), len(connection_id))
        head = bytes((0x40 | spin << 5 | self.key_phase << 2 | (PACKET_NUMBER_SIZE - 1),)) + connection_id
        sealed = layout.seal(self, packets, head, prefix, first, self.iv ^ path_id << 64)
        self.sealed += count
        return sealed

    def _layout(self, count: int, payload_size: int, cid_size: int) -> _Layout:
        key = (count, payload_size, cid_size)
        layout = self._layouts.get(key)
        if layout is None:
            if len(self._layouts) >= MAX_CACHED_LAYOUTS:
                del self._layouts[next(iter(self._layouts))]
            layout = self._layouts[key] = _Layout(count, payload_size, cid_size)
        return layout

    def encrypt_rows(
        self, nonces: list[memoryview], datas: list[memoryview], heads: list[memoryview], outs: list[memoryview]
    ) -> None:
        """Encrypt each data into its out, in place or not."""
        deque(map(self._aead.encrypt_into, nonces, datas, heads, outs), 0)

    # -- opening

    def unmask(self, datagrams: Sequence[bytes], cid_size: int) -> list[tuple[int, int, int]]:
        """Return (first byte, packet number as sent, its bits) for each short-header packet, header unprotected.

        Every datagram has at least 1 + cid_size + 4 + 16 bytes.
        """
        at = 1 + cid_size
        begin, stop = at + 4, at + 4 + SAMPLE_SIZE
        masks = self.mask.masks(b"".join([data[begin:stop] for data in datagrams]))
        from_bytes = int.from_bytes
        unmasked = []
        offset = 0
        for data in datagrams:
            first = data[0] ^ masks[offset] & 0x1F
            size = (first & 3) + 1
            number = from_bytes(data[at : at + size]) ^ from_bytes(masks[offset + 1 : offset + 1 + size])
            unmasked.append((first, number, 8 * size))
            offset += SAMPLE_SIZE
        return unmasked

    def decrypt_all(
        self, nonces: Sequence[bytes], bodies: Sequence[memoryview], heads: Sequence[bytes]
    ) -> list[bytes] | None:
        """Return the payloads of packets; None, and nothing is counted, if any has a wrong tag."""
        try:
            return list(map(self._aead.decrypt, nonces, bodies, heads))
        except InvalidTag:
            return None

    def open(self, body: bytes, header: bytes, number: int, path_id: int = 0) -> bytes | None:
        """Return the payload of one packet, header protection removed; None for a wrong tag, which is counted."""
        nonce = (self.iv ^ path_id << 64 ^ number).to_bytes(12)
        try:
            payload: bytes = self._aead.decrypt(nonce, body, header)
        except InvalidTag:
            self.failed += 1
            return None
        return payload


class _Layout:
    """Buffers and views for bursts of one shape: made once, as making the views costs more than the sealing."""

    def __init__(self, count: int, payload_size: int, cid_size: int) -> None:
        head = 1 + cid_size + PACKET_NUMBER_SIZE
        size = head + payload_size + TAG_SIZE
        self._count = count
        self._head = head
        self._size = size
        self._buffer = bytearray(count * size)
        self._rows = np.frombuffer(self._buffer, dtype=np.uint8).reshape(count, size)
        view = memoryview(self._buffer)
        starts = range(0, count * size, size)
        self._view = view
        self._starts = starts
        self._datas = [view[at + head : at + size - TAG_SIZE] for at in starts]
        self._heads = [view[at : at + head] for at in starts]
        self._outs = [view[at + head : at + size] for at in starts]
        nonces = bytearray(12 * count)
        self._nonce_rows = np.frombuffer(nonces, dtype=np.uint8).reshape(count, 12)
        self._nonces = [memoryview(nonces)[at : at + 12] for at in range(0, 12 * count, 12)]
        self._index = np.arange(count, dtype=np.uint64)
        self._prefix = -1
        self._bodies: list[memoryview] = []

    def seal(
        self, keys: PacketKeys, packets: Sequence[bytes], head: bytes, prefix: bytes, first: int, iv: int
    ) -> bytes:
        """Fill the rows, encrypt in place, protect the headers; return a copy of it all."""
        if self._prefix != len(prefix):
            self._prefix = len(prefix)
            begin = self._head + len(prefix)
            self._bodies = [self._view[at + begin : at + self._size - TAG_SIZE] for at in self._starts]
        rows, number_at = self._rows, self._head - PACKET_NUMBER_SIZE
        iv_bytes = iv.to_bytes(12)
        numbers = self._index + np.uint64(first)
        self._nonce_rows[:, :4] = np.frombuffer(iv_bytes[:4], dtype=np.uint8)
        low = np.uint64(int.from_bytes(iv_bytes[4:]))
        self._nonce_rows[:, 4:] = (numbers ^ low).astype(">u8").view(np.uint8).reshape(self._count, 8)
        template = head + bytes(PACKET_NUMBER_SIZE) + prefix
        rows[:, : len(template)] = np.frombuffer(template, dtype=np.uint8)
        wire = (numbers & np.uint64(0xFFFF)).astype(">u2").view(np.uint8).reshape(self._count, 2)
        rows[:, number_at : self._head] = wire
        for body, packet in zip(self._bodies, packets, strict=True):
            body[:] = packet
        keys.encrypt_rows(self._nonces, self._datas, self._heads, self._outs)
        samples = rows[:, number_at + 4 : number_at + 4 + SAMPLE_SIZE].tobytes()
        masks = np.frombuffer(keys.mask.masks(samples), dtype=np.uint8).reshape(self._count, SAMPLE_SIZE)
        rows[:, 0] ^= masks[:, 0] & 0x1F
        rows[:, number_at : self._head] ^= masks[:, 1:3]
        return bytes(self._buffer)
