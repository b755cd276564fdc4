"""The few packets an endpoint reads and writes before there is a connection (RFC 9000 §17.2, RFC 8999).

Reading stops at what decides a packet's fate, so that one nobody asked for costs little. Packets with keys, and
all payloads, are aioquic's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicFrameType, QuicPacketType
from aioquic.quic.packet_builder import QuicPacketBuilder
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

if TYPE_CHECKING:
    from qtunnel.quic.settings import RandomBytes

__all__ = [
    "MAX_CID_SIZE",
    "QUIC_V1",
    "InitialHeader",
    "encode_initial_close",
    "encode_retry",
    "encode_version_negotiation",
    "parse_initial",
]

QUIC_V1: Final = 1
MAX_CID_SIZE: Final = 20
_RETRY_AEAD: Final = AESGCM(bytes.fromhex("be0c690b9f66575a1d766b54e368c84e"))
_RETRY_NONCE: Final = bytes.fromhex("461599d35d632bf2239825bb")
"""The fixed key and nonce of the Retry integrity tag (RFC 9001 §5.8); one object, for its set-up is the cost."""


@dataclass(slots=True)
class InitialHeader:
    """The unprotected start of an Initial packet, as far as an endpoint looks."""

    version: int
    destination_cid: bytes
    source_cid: bytes
    token: bytes
    is_initial: bool
    """False for the other long-header packets and for other versions, whose types are unknown."""


def parse_initial(datagram: bytes) -> InitialHeader | None:
    """Return the header of the first packet of a datagram that begins with a long header; None if malformed.

    For versions other than 1 only the invariant fields are read (RFC 8999 §5.1).
    """
    size = len(datagram)
    if size < 7:
        return None
    version = int.from_bytes(datagram[1:5], "big")
    destination_end = 6 + datagram[5]
    if destination_end >= size:
        return None
    source_start = destination_end + 1
    source_end = source_start + datagram[destination_end]
    if source_end > size:
        return None
    destination_cid = datagram[6:destination_end]
    source_cid = datagram[source_start:source_end]
    if version != QUIC_V1:
        return InitialHeader(version, destination_cid, source_cid, b"", False)
    if len(destination_cid) > MAX_CID_SIZE or len(source_cid) > MAX_CID_SIZE or not datagram[0] & 0x40:
        return None
    if datagram[0] & 0x30:  # 0-RTT, Handshake or Retry
        return InitialHeader(version, destination_cid, source_cid, b"", False)
    token = _parse_token(datagram, source_end)
    if token is None:
        return None
    return InitialHeader(version, destination_cid, source_cid, token, True)


def _parse_token(datagram: bytes, start: int) -> bytes | None:
    """Return the bytes behind the varint length at start, or None if the datagram is shorter."""
    if start >= len(datagram):
        return None
    width = 1 << (datagram[start] >> 6)
    length_end = start + width
    length = int.from_bytes(datagram[start:length_end], "big") & ((1 << (8 * width - 2)) - 1)
    token_end = length_end + length
    if token_end >= len(datagram):
        return None
    return datagram[length_end:token_end]


def encode_retry(*, source_cid: bytes, destination_cid: bytes, original_cid: bytes, token: bytes) -> bytes:
    """Return a version 1 Retry packet (RFC 9000 §17.2.5) with its integrity tag (RFC 9001 §5.8).

    destination_cid: the client's source connection id. original_cid: the destination the client chose.
    """
    packet = b"\xf0\x00\x00\x00\x01%c%b%c%b%b" % (
        len(destination_cid),
        destination_cid,
        len(source_cid),
        source_cid,
        token,
    )
    pseudo = b"%c%b%b" % (len(original_cid), original_cid, packet)
    return packet + _RETRY_AEAD.encrypt(_RETRY_NONCE, b"", pseudo)


def encode_version_negotiation(
    *, source_cid: bytes, destination_cid: bytes, versions: tuple[int, ...], random_bytes: RandomBytes
) -> bytes:
    """Return a Version Negotiation packet (RFC 9000 §17.2.1).

    Connection ids are up to 255 bytes here (RFC 8999 §5.1).
    """
    first = 0x80 | 0x40 | (random_bytes(1)[0] & 0x3F)
    return b"%c\x00\x00\x00\x00%c%b%c%b%b" % (
        first,
        len(destination_cid),
        destination_cid,
        len(source_cid),
        source_cid,
        b"".join(version.to_bytes(4, "big") for version in versions),
    )


def encode_initial_close(header: InitialHeader, error_code: int) -> bytes:
    """Return an Initial packet that refuses the connection a header asks for (RFC 9000 §10.2.3).

    Derives keys: some hundred microseconds, unlike the rest of this module.
    """
    crypto = CryptoPair()
    crypto.setup_initial(cid=header.destination_cid, is_client=False, version=header.version)
    builder = QuicPacketBuilder(
        host_cid=header.destination_cid,
        peer_cid=header.source_cid,
        version=header.version,
        is_client=False,
        max_datagram_size=1200,
    )
    builder.start_packet(QuicPacketType.INITIAL, crypto)
    buf = builder.start_frame(QuicFrameType.TRANSPORT_CLOSE, capacity=32)
    buf.push_uint_var(error_code)
    buf.push_uint_var(QuicFrameType.PADDING)
    buf.push_uint_var(0)  # no reason phrase
    datagrams, _ = builder.flush()
    return datagrams[0]
