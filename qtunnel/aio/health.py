"""How the event loop is doing and what limits it now, for `qtunnel status`: looked at ten times a second at most.

Nothing is looked at while nothing happens. A flush costs one comparison, a sample a few system calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from qtunnel.aio.lateness import Lateness
from qtunnel.linux.cpu_time import wanted_cpu_time
from qtunnel.quic.sending_limit import SendingLimit
from qtunnel.tunnel.limit_history import SLOT_S, LimitHistory

__all__ = ["Health"]

BUSY: Final = 0.9
"""Share of the time that the process ran or waited for a CPU, from which on the CPU is the limit."""
CPU_SAMPLES: Final = 100


class Health:
    """Of one driver. due: when the next sample is wanted, seconds; the driver calls sample() then, after a flush.

    sending_limit: asks the core, given the time. receive_drops: how many datagrams a full receive buffer has cost
    so far. cpu_time: seconds the process has run, or waited to.
    """

    def __init__(
        self,
        *,
        sending_limit: Callable[[float], SendingLimit] = lambda now: SendingLimit.NOTHING,
        receive_drops: Callable[[], int] = lambda: 0,
        cpu_time: Callable[[], float] = wanted_cpu_time,
        now: float | None = None,
    ) -> None:
        self.lateness = Lateness()
        self.limits = LimitHistory()
        self._sending_limit = sending_limit
        self._receive_drops = receive_drops
        self._cpu_time = cpu_time
        start = monotonic() if now is None else now
        self.due = start + SLOT_S
        self._dropped = receive_drops()
        self._cpu: deque[tuple[float, float]] = deque([(start, cpu_time())], maxlen=CPU_SAMPLES)

    def sample(self, now: float, *, is_blocked: bool) -> None:
        """Look at what limits now. is_blocked: datagrams wait, as a UDP socket's send buffer is full."""
        self.due = (int(now / SLOT_S) + 1) * SLOT_S
        limit = self._sending_limit(now)  # always asked: a server notes it for each session
        before, used_before = self._cpu[-1]
        used, dropped = self._cpu_time(), self._receive_drops()
        self._cpu.append((now, used))
        if is_blocked:
            limit = SendingLimit.SOCKET_BUFFER
        elif used - used_before >= BUSY * (now - before):
            limit = SendingLimit.CPU
        elif dropped > self._dropped:
            limit = SendingLimit.SOCKET_BUFFER
        self._dropped = dropped
        self.limits.note(limit, now)

    def as_dict(self, now: float) -> dict[str, Any]:
        """Return what `qtunnel status` shows; of the last ten seconds."""
        lateness = self.lateness
        return {
            "limit": str(self.limits.current(now)),
            "limits": self.limits.shares(now),
            "cpu_share": self._cpu_share(now),
            "wake_ups": lateness.count(now),
            "lateness_p99_ms": round(lateness.quantile(0.99, now) * 1000, 3),
            "lateness_max_ms": round(lateness.largest(now) * 1000, 3),
        }

    def _cpu_share(self, now: float) -> float:
        """Return the share of one CPU that was wanted since the oldest sample within ten seconds."""
        oldest = next((each for each in self._cpu if each[0] > now - CPU_SAMPLES * SLOT_S), self._cpu[-1])
        elapsed = now - oldest[0]
        return round(max(0.0, self._cpu_time() - oldest[1]) / elapsed, 3) if elapsed > 0 else 0.0
