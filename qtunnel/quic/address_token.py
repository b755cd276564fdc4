"""Retry tokens: proof that a client receives at the address it sends from (RFC 9000 §8.1.2 to §8.1.4).

    nonce (12) | AES-GCM( time issued, ms (8) | length (1) | original destination connection id | bound to )

A token is bound to the client's address and port and to the Retry packet's connection id. One AES-GCM each way:
some microseconds, so a flood of Initials costs less than the packets do. No state is kept.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

if TYPE_CHECKING:
    from qtunnel.burst import Address
    from qtunnel.quic.settings import RandomBytes

__all__ = ["AddressTokens", "TokenFault"]

NONCE_SIZE: Final = 12
TIME_SIZE: Final = 8
TAG_SIZE: Final = 16


class TokenFault(Enum):
    """Why a token proves nothing."""

    FOREIGN = "foreign"  # not one of ours, such as another server's NEW_TOKEN: as if there were none
    NOT_GOOD = "not good"  # ours, but too old, from another address, or for another Retry


class AddressTokens:
    """Issues and checks tokens under one key of 16 or 32 bytes. lifetime: seconds a token is good for."""

    def __init__(self, *, key: bytes, lifetime: float, random_bytes: RandomBytes) -> None:
        self._aead = AESGCM(key)
        self._lifetime_ms = int(lifetime * 1000)
        self._random_bytes = random_bytes

    def issue(self, *, address: Address, original_cid: bytes, retry_cid: bytes, now: float) -> bytes:
        """Return a token for the client at this address, whose next Initial must go to retry_cid."""
        nonce = self._random_bytes(NONCE_SIZE)
        issued = int(now * 1000).to_bytes(TIME_SIZE, "big")
        plain = b"%b%c%b%b" % (issued, len(original_cid), original_cid, _bound_to(address, retry_cid))
        return nonce + self._aead.encrypt(nonce, plain, None)

    def original_cid(
        self, token: bytes, *, address: Address, destination_cid: bytes, now: float
    ) -> bytes | TokenFault:
        """Return the connection id the client used first, or what is wrong with the token."""
        if len(token) < NONCE_SIZE + TAG_SIZE:
            return TokenFault.FOREIGN
        try:
            plain = self._aead.decrypt(token[:NONCE_SIZE], token[NONCE_SIZE:], None)
        except InvalidTag:
            return TokenFault.FOREIGN
        cid_end = TIME_SIZE + 1 + plain[TIME_SIZE]
        age_ms = int(now * 1000) - int.from_bytes(plain[:TIME_SIZE], "big")
        if plain[cid_end:] != _bound_to(address, destination_cid) or not 0 <= age_ms <= self._lifetime_ms:
            return TokenFault.NOT_GOOD
        return plain[TIME_SIZE + 1 : cid_end]


def _bound_to(address: Address, retry_cid: bytes) -> bytes:
    """Return what a token is good for: this address and port, this connection id."""
    return b"%d %b %b" % (address[1], address[0].encode(), retry_cid)
