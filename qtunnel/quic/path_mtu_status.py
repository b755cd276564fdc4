"""What is known of a path's MTU, for `qtunnel status` and `qtunnel why-mtu`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from qtunnel.pmtud.sizes import link_mtu

if TYPE_CHECKING:
    from qtunnel.pmtud.discovery import PathMtuDiscovery
    from qtunnel.recovery.size_counts import SizeCounts

__all__ = ["path_mtu_status"]

MAX_SIZES: Final = 16
"""Sizes that are shown, the largest first."""


def path_mtu_status(
    discovery: PathMtuDiscovery | None, size: int, *, is_ipv6: bool, counts: SizeCounts | None, now: float
) -> dict[str, Any]:
    """Return it as what JSON can say. Sizes are link MTUs, bytes of IP packets; times are seconds ago.

    discovery: None where the size was told. size: the present one, of UDP payload. counts: of packets by size.
    """
    version = 6 if is_ipv6 else 4
    status: dict[str, Any] = {
        "mtu": link_mtu(size, version),
        "state": "told",
        "since_s": None,
        "why": [],
        "by_size": {},
    }
    if discovery is None:
        return status
    status["state"] = "suspicious" if discovery.is_suspicious else discovery.state.value
    if discovery.since is not None:
        status["since_s"] = round(now - discovery.since, 1)
    status["why"] = [
        {"ago_s": round(now - step.time, 3), "mtu": link_mtu(step.size, version), "text": step.text}
        for step in discovery.story
    ]
    status["probes"] = discovery.probes_sent
    status["probe_bytes"] = discovery.probe_bytes
    status["probes_lost"] = discovery.probes_lost
    status["hints_ignored"] = discovery.hints_ignored
    sizes = sorted(counts.items(), reverse=True) if counts else []
    for each, count in sizes[:MAX_SIZES]:
        status["by_size"][str(link_mtu(each, version))] = {
            "sent": count.sent,
            "acked": count.acked,
            "lost": count.lost,
        }
    return status
