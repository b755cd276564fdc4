"""What the running tunnels say, and what limits them: the CPU, a buffer, or a queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from qtunnel.cli.checks.finding import Finding, not_checked, note, ok, warning
from qtunnel.cli.health_lines import LIMIT_WORDS

__all__ = ["check_tunnel"]

_BUSY: Final = 0.85
"""Share of one CPU above which the program, which has one thread, is likely to be the limit."""
_REMEDIES: Final = {
    "cpu": "A faster CPU; see the event loop's lateness in qtunnel status",
    "socket-buffer": "qtunnel status says which buffer and what to type",
    "window": "Usual for the first seconds of a transfer; if it stays: losses, or --congestion-control bbr",
    "pacing": "Usual with bbr, which paces at the rate it has measured",
    "peer": "qtunnel status and doctor on the other end",
    "path": "Usual for bulk data: the path gives no more",
}
_SENDING: Final = ("queue-full", "queue-too-old")
_SOCKET: Final = ("udp-blocked",)
_TOO_BIG: Final = ("datagram-too-large", "udp-too-big")


def check_tunnel(
    name: str, before: Mapping[str, Any], after: Mapping[str, Any], *, cpu_share: float | None
) -> list[Finding]:
    """Compare two status answers about a second apart. cpu_share: of one CPU, used by its process between them."""
    subject = f"tunnel {name}"
    findings = [warning(subject, str(text), "See above, or the log") for text in after.get("warnings") or ()]
    if cpu_share is None:
        findings.append(not_checked(subject, "its CPU time cannot be read", "sudo qtunnel doctor"))
    elif cpu_share > _BUSY:
        findings.append(
            warning(
                subject,
                f"it uses {cpu_share:.0%} of a CPU: the CPU is the limit",
                "A faster CPU; check that UDP offload is there, and that no --log-level debug or --qlog-dir is on",
            )
        )
    findings += _limit(subject, after)
    lost = _receive_drops(after) - _receive_drops(before)
    if lost > 0:
        findings.append(
            warning(
                subject,
                f"its receive buffer overflowed: {lost} datagrams lost in a second",
                "--receive-buffer larger than now, and CPU time for it",
            )
        )
    old, new = _drops(before), _drops(after)
    for reasons, meaning, remedy in (
        (
            _SENDING,
            "its sending queue was full: the path (congestion window or pacing) is the limit",
            "Look at the path: loss, rate, round trip",
        ),
        (
            _SOCKET,
            "its socket's send buffer stayed full: the interface is the limit",
            "--send-buffer, or a faster interface",
        ),
        (_TOO_BIG, "packets did not fit the path", "--path-mtu smaller than now"),
    ):
        grown = sum(new.get(reason, 0) - old.get(reason, 0) for reason in reasons)
        if grown > 0:
            findings.append(warning(subject, f"{meaning} ({grown} packets dropped in a second)", remedy))
    return findings or [ok(subject, f"nothing limits it now; {cpu_share or 0:.0%} of a CPU")]


def _limit(subject: str, answer: Mapping[str, Any]) -> list[Finding]:
    """Say what the tunnel itself finds: it looks ten times a second, and knows its window from its pacer."""
    limit = (answer.get("health") or {}).get("limit")
    if limit in (None, "nothing"):
        return []
    remedy = _REMEDIES.get(limit, "See docs/debugging.md, What limits it?")
    return [note(subject, f"limited by {LIMIT_WORDS.get(limit, limit)}", remedy)]


def _drops(answer: Mapping[str, Any]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in (answer, *(answer.get("sessions") or ())):
        for reason, count in (part.get("drops") or {}).items():
            total[reason] = total.get(reason, 0) + count
    return total


def _receive_drops(answer: Mapping[str, Any]) -> int:
    sockets = [*(answer.get("sockets") or ()), answer.get("socket") or {}]
    return sum(int(socket.get("receive_drops") or 0) for socket in sockets)
