"""What LossRecovery answers: what was acknowledged, lost, discarded."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["AckResult", "DiscardResult", "LossResult", "TimeoutResult"]


@dataclass(slots=True)
class LossResult:
    """Packets declared lost. Counts are of packets in flight that are no MTU probes; sizes in bytes.

    lost_payloads: of all packets lost, probes and such as only acknowledge too. lost_probes: packet numbers of
    MTU probes. lost_sizes: (size, how many), one entry or more for a size.
    """

    lost_payloads: list[object] = field(default_factory=list)
    lost: int = 0
    lost_bytes: int = 0
    lost_probes: list[int] = field(default_factory=list)
    lost_sizes: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class AckResult(LossResult):
    """What an ACK brought.

    newly_acked: packets of every kind; newly_acked_bytes: those in flight. acked_sizes: of those in flight,
    probes too. spurious: packets declared lost earlier that this ACK shows to have arrived; they are in no
    other count. largest_newly_acked: a packet number.
    """

    acked_payloads: list[object] = field(default_factory=list)
    newly_acked: int = 0
    newly_acked_bytes: int = 0
    largest_newly_acked: int | None = None
    rtt_updated: bool = False
    spurious: int = 0
    acked_probes: list[int] = field(default_factory=list)
    acked_sizes: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class TimeoutResult(LossResult):
    """What the timer brought: losses, or a probe timeout.

    send_probe: send one or two ack-eliciting packets now, whatever the window and the pacer say
    (RFC 9002 §6.2.4). probe_payloads: of the oldest unanswered packets that had one; to be sent again in them.
    """

    send_probe: bool = False
    probe_payloads: list[object] = field(default_factory=list)


@dataclass(slots=True)
class DiscardResult:
    """Packets that are forgotten: not lost, not acknowledged. Sizes in bytes; probes: packet numbers."""

    payloads: list[object] = field(default_factory=list)
    discarded: int = 0
    discarded_bytes: int = 0
    probes: list[int] = field(default_factory=list)
