"""What `qtunnel status` shows of one UDP socket: its buffers, what they cost, and how much went in batches."""

from __future__ import annotations

from typing import Any

from qtunnel.burst import address_text
from qtunnel.linux.udp import UdpSocket
from qtunnel.quic.segmented_sends import GsoVerdict

__all__ = ["buffer_advice", "socket_status"]


def socket_status(udp: UdpSocket, verdict: GsoVerdict) -> dict[str, Any]:
    """Return it; shares are 0 to 1, None before the first datagram. verdict: of its connections."""
    counters = udp.counters
    drops = udp.drops()
    return {
        "local": address_text(udp.local_address),
        "receive_buffer": udp.receive_buffer,
        "send_buffer": udp.send_buffer,
        "receive_drops": drops,
        "advice": buffer_advice(drops, has=udp.receive_buffer, wanted=udp.receive_buffer_wanted),
        "gso": udp.gso_available and not verdict.is_off,
        "gso_off": "peers lost what was sent together" if verdict.is_off else None,
        "gso_trials": verdict.trials,
        "gso_given_up": verdict.given_up,
        "gro": udp.gro_available,
        "gso_share": _share(counters.gso_datagrams, counters.datagrams_sent),
        "gro_share": _share(counters.gro_datagrams, counters.datagrams_received),
        "gso_fallbacks": counters.gso_fallbacks,
        "gro_fallbacks": counters.gro_fallbacks,
        "blocked": counters.blocked,
        "partly_sent": counters.partly_sent,
    }


def buffer_advice(drops: int, *, has: int, wanted: int | None) -> str | None:
    """Return what to type about a receive buffer that is too small, or None; sizes in bytes.

    wanted: what was asked for; None: the kernel's default was left as it is.
    """
    if wanted is not None and has < wanted:
        return f"sysctl -w net.core.rmem_max={wanted}"
    if not drops:
        return None
    larger = 2 * max(has, wanted or 0)
    return f"sysctl -w net.core.rmem_max={larger}, and start with --receive-buffer {larger}"


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None
