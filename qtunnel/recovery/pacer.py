"""Pacing by credit (RFC 9002 §7.7): what the rate allows gathers for a while and is then sent in one go."""

from __future__ import annotations

from typing import Final

from qtunnel.recovery.congestion.base import CongestionControl

__all__ = ["MAX_CREDIT_BYTES", "MAX_CREDIT_SECONDS", "QUANTUM_SECONDS", "Pacer"]

MAX_CREDIT_SECONDS: Final = 0.002
MAX_CREDIT_BYTES: Final = 65536
"""One segmented send (UDP_SEGMENT) holds no more."""
QUANTUM_SECONDS: Final = 0.001
"""How much of the rate one wake-up is worth waiting for."""
MIN_CREDIT_DATAGRAMS: Final = 2
CLOCK_ERROR: Final = 1e-6
"""Seconds; or rounding could leave the credit a byte short of a datagram when that time has come."""


class Pacer:
    """A token bucket filled at the congestion control's pacing rate.

    A burst may overdraw it: the debt is paid before anything else is sent. Without a rate there is no pacing.
    Times in seconds, sizes in bytes.
    """

    __slots__ = ("_congestion", "_credit", "_filled", "max_datagram_size")

    def __init__(self, congestion: CongestionControl, max_datagram_size: int = 1200) -> None:
        self._congestion = congestion
        self.max_datagram_size = max_datagram_size
        self._credit = 0.0
        self._filled: float | None = None

    def budget(self, now: float) -> int:
        """Return how many bytes may be sent now; 0 or less: none, and next_time says when."""
        rate = self._congestion.pacing_rate
        if rate is None:
            return MAX_CREDIT_BYTES
        return int(self._fill(rate, now))

    def on_sent(self, size: int, now: float) -> None:
        """Take size bytes of credit. LossRecovery does so for all that is in flight; nobody else need."""
        rate = self._congestion.pacing_rate
        if rate is None:
            self._credit = 0.0
            self._filled = now
            return
        if now != self._filled:
            self._fill(rate, now)
        self._credit -= size

    def next_time(self, now: float) -> float | None:
        """Return when the next quantum may be sent; None: a full datagram may be sent now."""
        rate = self._congestion.pacing_rate
        if rate is None:
            return None
        credit = self._fill(rate, now)
        if credit >= self.max_datagram_size:
            return None
        quantum = min(max(rate * QUANTUM_SECONDS, self.max_datagram_size), MAX_CREDIT_BYTES)
        return now + (quantum - credit) / rate + CLOCK_ERROR

    def clear_debt(self, now: float) -> None:
        """Forgive what was overdrawn, where what was sent turned out never to have got through."""
        rate = self._congestion.pacing_rate
        if rate is not None:
            self._credit = max(self._fill(rate, now), 0.0)

    def _fill(self, rate: float, now: float) -> float:
        filled = self._filled
        floor = MIN_CREDIT_DATAGRAMS * self.max_datagram_size
        if filled is None:
            # A pacer that starts with nothing would hold up the very first packet.
            self._credit = float(floor)
            self._filled = now
        elif now > filled:
            credit = self._credit + rate * (now - filled)
            most = rate * MAX_CREDIT_SECONDS
            if most < floor:
                most = floor
            elif most > MAX_CREDIT_BYTES:
                most = MAX_CREDIT_BYTES
            self._credit = credit if credit < most else float(most)
            self._filled = now
        return self._credit
