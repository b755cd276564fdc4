"""Retry tokens: proof that a client receives at the address it sends from (RFC 9000 §8.1.2 to §8.1.4).

    nonce (12) | AES-GCM( time issued, ms (8) | original destination connection id )

The client's address and the Retry packet's connection id are authenticated but not included. One AES-GCM each way:
some microseconds, so a flood of Initials costs less than the packets do. No state is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

if TYPE_CHECKING:
    from qtunnel.burst import Address
    from qtunnel.quic.settings import RandomBytes

__all__ = ["AddressTokens"]

NONCE_SIZE: Final = 12
TIME_SIZE: Final = 8
MIN_TOKEN_SIZE: Final = NONCE_SIZE + TIME_SIZE + 8 + 16
MAX_TOKEN_SIZE: Final = NONCE_SIZE + TIME_SIZE + 20 + 16


class AddressTokens:
    """Issues and checks tokens under one key of 16 or 32 bytes. lifetime: seconds a token is good for."""

    def __init__(self, *, key: bytes, lifetime: float, random_bytes: RandomBytes) -> None:
        self._aead = AESGCM(key)
        self._lifetime_ms = int(lifetime * 1000)
        self._random_bytes = random_bytes

    def issue(self, *, address: Address, original_cid: bytes, retry_cid: bytes, now: float) -> bytes:
        """Return a token for the client at this address, whose next Initial must go to retry_cid."""
        nonce = self._random_bytes(NONCE_SIZE)
        plain = int(now * 1000).to_bytes(TIME_SIZE, "big") + original_cid
        return nonce + self._aead.encrypt(nonce, plain, _bound_to(address, retry_cid))

    def original_cid(self, token: bytes, *, address: Address, destination_cid: bytes, now: float) -> bytes | None:
        """Return the connection id the client used first, or None if the token is not good (any more)."""
        if not MIN_TOKEN_SIZE <= len(token) <= MAX_TOKEN_SIZE:
            return None
        try:
            plain = self._aead.decrypt(token[:NONCE_SIZE], token[NONCE_SIZE:], _bound_to(address, destination_cid))
        except InvalidTag:
            return None
        age_ms = int(now * 1000) - int.from_bytes(plain[:TIME_SIZE], "big")
        if not 0 <= age_ms <= self._lifetime_ms:
            return None
        return plain[TIME_SIZE:]


def _bound_to(address: Address, retry_cid: bytes) -> bytes:
    """Return what a token is good for: this address and port, this connection id."""
    return b"%d %s %s" % (address[1], address[0].encode(), retry_cid)
