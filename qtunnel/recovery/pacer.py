"""Pacing by credit (RFC 9002 §7.7): what the rate allows gathers for a while and is then sent in one go."""

from __future__ import annotations

from typing import Final

from qtunnel.recovery.congestion.base import CongestionControl

__all__ = ["MAX_CREDIT_BYTES", "MAX_CREDIT_SECONDS", "QUANTUM_SECONDS", "Pacer"]

MAX_CREDIT_SECONDS: Final = 0.002
MAX_CREDIT_BYTES: Final = 4 * 65536
"""Four segmented sends (UDP_SEGMENT), about what one wake-up reads. 64 KB, at rates above 500 Mbit/s, cut what was
read together into pieces, each with a timer of its own (docs/design/0008-packet-plane.md)."""
QUANTUM_SECONDS: Final = 0.001
"""How much of the rate one wake-up is worth waiting for."""
MIN_CREDIT_DATAGRAMS: Final = 2
CLOCK_ERROR: Final = 1e-6
"""Seconds; or rounding could leave the credit a byte short of what was waited for when that time has come."""


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

    def budget(self, now: float, wanted: int = 0) -> int:
        """Return how many bytes may be sent now; 0 or less: none, and next_time says when.

        wanted: bytes that wait. Less than these and less than a quantum is not given out: whatever else wakes the
        sender, acknowledgements or new packets, would cut a quantum into pieces.
        """
        rate = self._congestion.pacing_rate
        if rate is None:
            return MAX_CREDIT_BYTES
        credit = self._fill(rate, now)
        if credit < wanted and credit < self._quantum(rate) - CLOCK_ERROR * rate:
            return min(0, int(credit))
        return int(credit)

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

    def next_time(self, now: float, wanted: int = 0) -> float | None:
        """Return when the next quantum may be sent; None: now, or a full datagram where no more is wanted."""
        rate = self._congestion.pacing_rate
        if rate is None:
            return None
        credit = self._fill(rate, now)
        quantum = self._quantum(rate)
        if credit >= min(max(wanted, self.max_datagram_size), quantum - CLOCK_ERROR * rate):
            return None
        return now + (quantum - credit) / rate + CLOCK_ERROR

    def clear_debt(self, now: float) -> None:
        """Forgive what was overdrawn, where what was sent turned out never to have got through."""
        rate = self._congestion.pacing_rate
        if rate is not None:
            self._credit = max(self._fill(rate, now), 0.0)

    def _quantum(self, rate: float) -> float:
        return min(max(rate * QUANTUM_SECONDS, self.max_datagram_size), MAX_CREDIT_BYTES)

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
