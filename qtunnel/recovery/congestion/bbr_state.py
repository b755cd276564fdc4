"""BBR's states and what each does to rate and window (draft-ietf-ccwg-bbr, "Summary of Control Behavior")."""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = [
    "DEFAULT_CWND_GAIN",
    "DRAIN_PACING_GAIN",
    "GAINS",
    "PROBE_BW",
    "PROBE_RTT_CWND_GAIN",
    "PROBING_BW",
    "STARTUP_PACING_GAIN",
    "AckPhase",
    "State",
]

STARTUP_PACING_GAIN: Final = 2.77
DRAIN_PACING_GAIN: Final = 0.5
DEFAULT_CWND_GAIN: Final = 2.0
PROBE_RTT_CWND_GAIN: Final = 0.5


class State(Enum):
    """BBR.state, with its pacing gain and its window gain."""

    STARTUP = "Startup"
    DRAIN = "Drain"
    PROBE_BW_DOWN = "ProbeBW_DOWN"
    PROBE_BW_CRUISE = "ProbeBW_CRUISE"
    PROBE_BW_REFILL = "ProbeBW_REFILL"
    PROBE_BW_UP = "ProbeBW_UP"
    PROBE_RTT = "ProbeRTT"


GAINS: Final[dict[State, tuple[float, float]]] = {
    State.STARTUP: (STARTUP_PACING_GAIN, DEFAULT_CWND_GAIN),
    State.DRAIN: (DRAIN_PACING_GAIN, DEFAULT_CWND_GAIN),
    State.PROBE_BW_DOWN: (0.9, DEFAULT_CWND_GAIN),
    State.PROBE_BW_CRUISE: (1.0, DEFAULT_CWND_GAIN),
    State.PROBE_BW_REFILL: (1.0, DEFAULT_CWND_GAIN),
    State.PROBE_BW_UP: (1.25, 2.25),
    State.PROBE_RTT: (1.0, PROBE_RTT_CWND_GAIN),
}
PROBE_BW: Final = frozenset({State.PROBE_BW_DOWN, State.PROBE_BW_CRUISE, State.PROBE_BW_REFILL, State.PROBE_BW_UP})
PROBING_BW: Final = frozenset({State.STARTUP, State.PROBE_BW_REFILL, State.PROBE_BW_UP})


class AckPhase(Enum):
    """What the ACKs coming in now tell about the last bandwidth probe."""

    INIT = "init"
    REFILLING = "refilling"
    PROBE_STARTING = "probe starting"
    PROBE_FEEDBACK = "probe feedback"
    PROBE_STOPPING = "probe stopping"
