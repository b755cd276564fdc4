"""How much may be sent to an address that nobody has proved to be the peer's (RFC 9000 §8, §21.1.1.1)."""

from __future__ import annotations

from typing import Final

__all__ = ["AMPLIFICATION_FACTOR", "AddressAllowance"]

AMPLIFICATION_FACTOR: Final = 3


class AddressAllowance:
    """Bytes of UDP payload, of one address. is_validated: nothing is limited."""

    __slots__ = ("_received", "_sent", "is_validated")

    def __init__(self, *, is_validated: bool = False) -> None:
        self.is_validated = is_validated
        self._received = 0
        self._sent = 0

    def on_received(self, size: int) -> None:
        """Count datagrams from there."""
        self._received += size

    def on_sent(self, size: int) -> None:
        """Count datagrams to there."""
        self._sent += size

    def left(self) -> int | None:
        """Return how many bytes may be sent; None: any number."""
        if self.is_validated:
            return None
        return max(0, AMPLIFICATION_FACTOR * self._received - self._sent)
