"""What `qtunnel status` says about the program itself: what limits it, how late it is, offloads, sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from qtunnel.cli.output import byte_count

__all__ = ["LIMIT_WORDS", "as_number", "health_lines"]

LIMIT_WORDS: Final = {
    "nothing": "nothing: idle, or all there is goes out at once",
    "cpu": "the CPU",
    "socket-buffer": "a UDP socket's buffer",
    "window": "the congestion window, while the path is not full",
    "pacing": "the rate of the congestion control, while the path is not full",
    "peer": "the peer: it does not acknowledge what it was sent",
    "path": "the path: losses, or a full queue on it",
}
_TUN_COUNTERS: Final = (
    ("super_packets_read", "super-packets read"),
    ("segments_read", "packets in them"),
    ("coalesced_writes", "super-packets written"),
    ("packets_coalesced", "packets in them"),
    ("offload_fallbacks", "refused and written one by one"),
    ("bad_frames", "dropped as they made no sense"),
)


def health_lines(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return lines by what they are about; empty ones are not to be shown. Anything may be missing."""
    health = answer.get("health")
    health = health if isinstance(health, dict) else {}
    return {
        "limited by": _limit(health),
        "event loop": _event_loop(health),
        "TUN offload": _tun_offload(answer.get("tun_offload")),
        "sockets": "; ".join(_sockets(answer)),
    }


def _limit(health: Mapping[str, Any]) -> str:
    limit = health.get("limit")
    if not isinstance(limit, str):
        return ""
    shares = health.get("limits")
    parts = [LIMIT_WORDS.get(limit, limit)]
    if isinstance(shares, dict) and shares:
        seen = ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if as_number(share))
        parts.append(f"in the last 10 s: {seen}")
    return "; ".join(parts)


def _event_loop(health: Mapping[str, Any]) -> str:
    parts = []
    cpu = as_number(health.get("cpu_share"))
    if cpu is not None:
        parts.append(f"wants {cpu:.0%} of a CPU")
    largest, usual = as_number(health.get("lateness_max_ms")), as_number(health.get("lateness_p99_ms"))
    if largest is not None and usual is not None and health.get("wake_ups"):
        parts.append(f"99 % of the wake-ups at most {usual:.1f} ms late, one {largest:.1f} ms (last 10 s)")
    stalls, longest = as_number(health.get("stalls")), as_number(health.get("longest_stall_ms"))
    if stalls:
        parts.append(f"{stalls:,.0f} stalls in all, the longest {longest or 0:,.0f} ms")
    return ", ".join(parts)


def _tun_offload(counters: object) -> str:
    if not isinstance(counters, dict):
        return ""
    shown = [(as_number(counters.get(key)), words) for key, words in _TUN_COUNTERS]
    parts = [f"{count:,.0f} {words}" for count, words in shown if count]
    for part, whole, words in (
        ("segments_read", "packets_read", "of the packets read"),
        ("packets_coalesced", "packets_written", "of those written"),
    ):
        share = _share(as_number(counters.get(part)), as_number(counters.get(whole)))
        parts += [f"{share:.0%} {words}"] if share is not None else []
    refused = counters.get("refused")
    if isinstance(refused, dict) and refused:
        parts.append(f"refused by the kernel: {', '.join(refused)}")
    return ", ".join(parts)


def _sockets(answer: Mapping[str, Any]) -> list[str]:
    listed = answer.get("sockets", [answer["socket"]] if answer.get("socket") else [])
    return [_socket(each) for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _socket(socket: Mapping[str, Any]) -> str:
    buffers = "/".join(byte_count(as_number(socket.get(key)) or 0) for key in ("receive_buffer", "send_buffer"))
    parts = [f"{socket.get('local', 'UDP')}, buffers {buffers}"]
    for key, words in (("gso_share", "sent in batches (GSO)"), ("gro_share", "received in batches (GRO)")):
        share = as_number(socket.get(key))
        parts += [f"{share:.0%} {words}"] if share is not None else []
    for key, words in (("gso", "no GSO"), ("gro", "no GRO")):
        reason = socket.get(f"{key}_off")
        parts += [f"{words}: {reason}" if reason else words] if socket.get(key) is False else []
    drops = as_number(socket.get("receive_drops")) or 0
    parts += [f"{drops:.0f} datagrams lost because the receive buffer was full"] if drops else []
    advice = socket.get("advice")
    parts += [f"type: {advice}"] if isinstance(advice, str) else []
    return ", ".join(parts)


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def as_number(value: object) -> float | None:
    """Return a number of an answer, None for anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
