"""What LossRecovery answers: what was acknowledged, lost, discarded.

One is made for each ACK, so the constructors are written out: default factories cost twice as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from qtunnel.recovery.sent_packets import SentRun

__all__ = ["AckResult", "DiscardResult", "LossResult", "TimeoutResult"]


@dataclass(slots=True, init=False)
class LossResult:
    """Packets declared lost. Counts are of packets in flight that are no MTU probes; sizes in bytes.

    lost_payloads: of all packets lost, probes and such as only acknowledge too. lost_probes: packet numbers of
    MTU probes. lost_sizes: (size, how many, when sent), one entry for each run. lost_runs: each run with the bits
    of those of its packets, oldest first.
    """

    lost_payloads: list[object]
    lost: int
    lost_bytes: int
    lost_probes: list[int]
    lost_sizes: list[tuple[int, int, float]]
    lost_runs: Sequence[tuple[SentRun, int]]

    def __init__(self) -> None:
        self.lost_payloads = []
        self.lost = 0
        self.lost_bytes = 0
        self.lost_probes = []
        self.lost_sizes = []
        self.lost_runs = ()


@dataclass(slots=True, init=False)
class AckResult(LossResult):
    """What an ACK brought.

    newly_acked: packets of every kind; newly_acked_bytes: those in flight. acked_sizes: of those in flight,
    probes too. spurious: packets declared lost earlier that this ACK shows to have arrived; they are in no
    other count. largest_newly_acked: a packet number.
    """

    acked_payloads: list[object]
    newly_acked: int
    newly_acked_bytes: int
    largest_newly_acked: int | None
    rtt_updated: bool
    spurious: int
    acked_probes: list[int]
    acked_sizes: list[tuple[int, int]]

    def __init__(self) -> None:
        self.lost_payloads = []
        self.lost = 0
        self.lost_bytes = 0
        self.lost_probes = []
        self.lost_sizes = []
        self.lost_runs = ()
        self.acked_payloads = []
        self.newly_acked = 0
        self.newly_acked_bytes = 0
        self.largest_newly_acked = None
        self.rtt_updated = False
        self.spurious = 0
        self.acked_probes = []
        self.acked_sizes = []


@dataclass(slots=True, init=False)
class TimeoutResult(LossResult):
    """What the timer brought: losses, or a probe timeout.

    send_probe: send one or two ack-eliciting packets now, whatever the window and the pacer say
    (RFC 9002 §6.2.4). probe_payloads: of the oldest unanswered packets that had one; to be sent again in them.
    largest_unanswered: size of the largest packet in flight that is no MTU probe, bytes; 0 without a timeout.
    """

    send_probe: bool
    probe_payloads: list[object]
    largest_unanswered: int

    def __init__(self) -> None:
        LossResult.__init__(self)
        self.send_probe = False
        self.largest_unanswered = 0
        self.probe_payloads = []


@dataclass(slots=True)
class DiscardResult:
    """Packets that are forgotten: not lost, not acknowledged. Sizes in bytes; probes: packet numbers."""

    payloads: list[object] = field(default_factory=list)
    discarded: int = 0
    discarded_bytes: int = 0
    probes: list[int] = field(default_factory=list)
