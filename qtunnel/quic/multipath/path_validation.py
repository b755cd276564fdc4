"""Validation of one address of one path by PATH_CHALLENGE and PATH_RESPONSE (RFC 9000 §8.2, RFC 10069 §3.1).

Each challenge has data of its own, so that the answer says which one arrived. A datagram that holds one is made
MIN_DATAGRAM bytes long, which proves at once that the path carries that size; where the anti-amplification limit
forbids it, the address is validated first and the size by another challenge after that.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

__all__ = ["CHALLENGE_SIZE", "INITIAL_PTO", "MIN_DATAGRAM", "PathValidation", "ValidationResult"]

MIN_DATAGRAM: Final = 1200
"""Bytes of UDP payload (RFC 9000 §14)."""
CHALLENGE_SIZE: Final = 8
INITIAL_PTO: Final = 0.999
"""Seconds; of a path whose RTT nobody knows (RFC 9002 §6.2.2: 333 ms, and twice that for its variation)."""
MAX_OUTSTANDING: Final = 8


class ValidationResult(Enum):
    """What came of it."""

    PENDING = "pending"
    ADDRESS_VALIDATED = "address-validated"  # the size is still to be proved
    VALIDATED = "validated"
    FAILED = "failed"


class PathValidation:
    """One attempt. pto: seconds, of the connection; random_bytes: gives unpredictable data.

    needs_size: whether MIN_DATAGRAM has to be proved; false for an old address that is only asked once more.
    """

    def __init__(
        self, now: float, *, pto: float, random_bytes: Callable[[int], bytes], needs_size: bool = True
    ) -> None:
        self.result = ValidationResult.PENDING
        self._random_bytes = random_bytes
        self._needs_size = needs_size
        self._pto = pto
        self._outstanding: dict[bytes, bool] = {}  # data -> whether its datagram had MIN_DATAGRAM bytes
        self._interval = pto
        self._next_at = now
        self._give_up_at = now + self._patience()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.result in (ValidationResult.VALIDATED, ValidationResult.FAILED)

    def challenge_to_send(self, now: float, allowed: int | None) -> tuple[bytes, int] | None:
        """Return (data, size of the datagram to make) if a challenge is due; sending it is the caller's part.

        allowed: bytes the anti-amplification limit leaves, None for any number. A datagram of size 0 need not be
        padded.
        """
        if self.is_over or now < self._next_at:
            return None
        size = MIN_DATAGRAM if self._needs_size and (allowed is None or allowed >= MIN_DATAGRAM) else 0
        if self.result is ValidationResult.ADDRESS_VALIDATED and not size:
            return None
        data = self._random_bytes(CHALLENGE_SIZE)
        self._outstanding[data] = size >= MIN_DATAGRAM
        if len(self._outstanding) > MAX_OUTSTANDING:
            del self._outstanding[next(iter(self._outstanding))]
        # Not more often than an Initial would be sent again (RFC 9000 §8.2.1).
        self._next_at = now + self._interval
        self._interval *= 2
        return data, size

    def on_response(self, data: bytes, now: float) -> bool:
        """Take PATH_RESPONSE data; return whether it answers a challenge of ours."""
        had_size = self._outstanding.pop(data, None)
        if had_size is None or self.is_over:
            return False
        if had_size or not self._needs_size:
            self.result = ValidationResult.VALIDATED
        elif self.result is ValidationResult.PENDING:
            self.result = ValidationResult.ADDRESS_VALIDATED
            self._interval = self._pto
            self._next_at = now
            self._give_up_at = now + self._patience()
        return True

    def get_timer(self, *, can_send: bool = True) -> float | None:
        """Return when a challenge is due or patience ends; can_send: whether one could leave at all."""
        if self.is_over:
            return None
        return min(self._next_at, self._give_up_at) if can_send else self._give_up_at

    def handle_timer(self, now: float) -> None:
        """Give up if nothing was answered for long enough (RFC 9000 §8.2.4)."""
        if not self.is_over and now >= self._give_up_at:
            self.result = ValidationResult.FAILED

    def excuse(self, duration: float) -> None:
        """Add time in which we ourselves did nothing, seconds."""
        self._give_up_at += duration

    def _patience(self) -> float:
        return 3 * max(self._pto, INITIAL_PTO)
