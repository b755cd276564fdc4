"""Plain numbers about one connection, for `qtunnel status`."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["ConnectionStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStats:
    """A snapshot. Bytes and datagrams are UDP payloads; times in seconds.

    lost: packets declared lost (RFC 9002 §6.1), probes aside. queued: packets waiting to be sent.
    key_updates: by either side (RFC 9001 §6). smoothed_rtt is 0.0 before the first sample.
    """

    bytes_sent: int
    bytes_received: int
    datagrams_sent: int
    datagrams_received: int
    lost: int
    smoothed_rtt: float
    congestion_window: int
    bytes_in_flight: int
    max_udp_payload: int
    queued: int
    key_updates: int = 0

    def replaced(self, **changes: int) -> ConnectionStats:
        """Return a copy with some numbers changed."""
        return replace(self, **changes)
