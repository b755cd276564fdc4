"""Sealing and opening bursts of 1-RTT packets (RFC 9001 §5), for AES-128, AES-256 and ChaCha20.

A burst costs one header-protection call (AES: one ECB call over all samples) and one AEAD call per packet. From
VECTOR_MIN packets of equal size on, headers, nonces and masks are made by numpy (seal_rows.py, run_opening.py).
Below, and for odd sizes, plain Python is faster. Both give the same (tests/unit/quic/test_packet_protection.py).

The nonce is the packet number, with the path id above it, exclusive-or the IV (RFC 9001 §5.3, RFC 10069 §2.4);
path 0 is plain QUIC version 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from aioquic.quic.crypto import derive_key_iv_hp
from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite, cipher_suite_hash, hkdf_expand_label
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from qtunnel.packet_run import Packets
from qtunnel.quic.seal_rows import MAX_ROWS, PACKET_NUMBER_SIZE, SAMPLE_SIZE, TAG_SIZE, seal_rows

__all__ = ["PACKET_NUMBER_SIZE", "TAG_SIZE", "HeaderMask", "PacketKeys"]

VECTOR_MIN: Final = 8
"""Packets from which on numpy's fixed cost pays (docs/design/0008-packet-plane.md)."""


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
        parts: Sequence[Packets],
        prefix: bytes,
        first: int,
        connection_id: bytes,
        *,
        together: int = MAX_ROWS,
        path_id: int = 0,
        spin: int = 0,
    ) -> list[bytes]:
        """Return QUIC packets of one size, so many together back to back; each payload is prefix + packet.

        parts: packets in order, at most MAX_ROWS in all, all of one length.
        """
        count = sum(map(len, parts))
        if count < VECTOR_MIN:
            payloads = [prefix + packet for part in parts for packet in part]
            sealed = self.seal(payloads, first, connection_id, path_id=path_id, spin=spin)
            return [b"".join(sealed[at : at + together]) for at in range(0, count, together)]
        rows = seal_rows(len(prefix) + len(parts[0][0]), len(connection_id))
        head = bytes((0x40 | spin << 5 | self.key_phase << 2 | (PACKET_NUMBER_SIZE - 1),)) + connection_id
        self.sealed += count
        iv = self.iv ^ path_id << 64
        return rows.seal(self.mask, self._aead.encrypt_into, parts, head, prefix, first, iv, together)

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
        self,
        nonces: Sequence[memoryview],
        bodies: Sequence[memoryview],
        heads: Sequence[memoryview],
        outs: Sequence[memoryview],
    ) -> bool:
        """Decrypt each body into its out; return False, and count nothing, if any has a wrong tag."""
        try:
            deque(map(self._aead.decrypt_into, nonces, bodies, heads, outs), 0)
        except InvalidTag:
            return False
        return True

    def open(self, body: bytes, header: bytes, number: int, path_id: int = 0) -> bytes | None:
        """Return the payload of one packet, header protection removed; None for a wrong tag, which is counted."""
        nonce = (self.iv ^ path_id << 64 ^ number).to_bytes(12)
        try:
            payload: bytes = self._aead.decrypt(nonce, body, header)
        except InvalidTag:
            self.failed += 1
            return None
        return payload
