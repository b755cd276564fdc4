"""Path MTU discovery at work in the packet plane, for one path: what it asks is sent, what became of it is told.

It knows sizes and times only (qtunnel/pmtud/); here are packet numbers and packets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from qtunnel.pmtud.config import PathMtuConfig
from qtunnel.pmtud.discovery import PathMtuDiscovery
from qtunnel.pmtud.events import Convicted, PmtudEvent, SearchEnded, SizeChanged
from qtunnel.pmtud.sizes import udp_payload

if TYPE_CHECKING:
    from qtunnel.quic.path import Path
    from qtunnel.quic.settings import PathMtuSettings
    from qtunnel.quic.transmits import Batch
    from qtunnel.recovery.results import AckResult, LossResult, TimeoutResult

__all__ = ["PathMtu", "path_mtu_config"]

MAX_EVENTS: Final = 64
"""Kept for whoever asks; the story (why) is longer."""

WritePadded = Callable[..., int]
"""Seals a PING with PADDING to a size: (batches, address, size, now, is_mtu_probe) -> packet number."""


def path_mtu_config(settings: PathMtuSettings, *, is_ipv6: bool, peer_limit: int) -> PathMtuConfig:
    """Return what discovery is told, in bytes of UDP payload. peer_limit: its max_udp_payload_size."""
    version = 6 if is_ipv6 else 4

    def payload(link_mtu: int | None) -> int | None:
        return None if link_mtu is None else udp_payload(link_mtu, version)

    return PathMtuConfig(
        version=version,
        interface=udp_payload(settings.interface_mtu, version),
        peer_limit=peer_limit,
        ceiling=payload(settings.ceiling),
        floor=payload(settings.floor),
        remembered=payload(settings.remembered),
        search=settings.search,
        black_hole=settings.black_hole,
        raise_interval=settings.raise_interval,
    )


class PathMtu:
    """The discovery of one path, its events applied.

    on_size: called with the size, in bytes of UDP payload, whenever ordinary packets get another one, and when it
    is known to be the largest.
    on_convicted: called before that with the largest size that still gets through, when larger packets vanish.
    events: the newest that happened, oldest first.
    """

    def __init__(
        self,
        path: Path,
        config: PathMtuConfig,
        *,
        on_size: Callable[[int, float], None],
        on_convicted: Callable[[int, float], list[Any]],
    ) -> None:
        self.config = config
        self.discovery = PathMtuDiscovery(config)
        self.events: list[PmtudEvent] = []
        self._path = path
        self._on_size = on_size
        self._on_convicted = on_convicted

    @property
    def limit(self) -> int | None:
        """What no ordinary packet may exceed just now, below discovery.size; None: nothing."""
        return self.discovery.base if self.discovery.is_holding else None

    def confirm(self, now: float) -> None:
        """Begin: the handshake is confirmed, or the path validated."""
        self._tell_rtt()
        self.discovery.on_confirmed(now)
        self._apply(now)

    # what became of packets

    def on_ack(self, result: AckResult, now: float) -> None:
        """Take what an ACK brought."""
        discovery, recovery = self.discovery, self._path.recovery
        if result.rtt_updated:
            self._tell_rtt()
        base = discovery.base
        for size, count in result.acked_sizes:
            if size > base:
                newest = recovery.size_counts[size].newest_acked
                if newest is not None:
                    discovery.on_packets_acked(size, count, newest, now)
        if result.acked_probes:
            discovery.on_probes_acked(result.acked_probes, now)
        self.on_lost(result, now)

    def on_lost(self, result: LossResult, now: float) -> None:
        """Take packets declared lost."""
        for size, count, sent in result.lost_sizes:
            self.discovery.on_packets_lost(size, count, sent, now)
        if result.lost_probes:
            self.discovery.on_probes_lost(result.lost_probes, now)
        self._apply(now)

    def on_timeout(self, result: TimeoutResult, now: float) -> None:
        """Take what the timer of loss recovery brought."""
        self.on_lost(result, now)
        if result.send_probe:
            self.discovery.on_pto(result.largest_unanswered, now)
            self._apply(now)

    def on_stall(self, now: float) -> None:
        """Take note that we slept: losses up to now prove nothing."""
        self.discovery.on_stall(now)

    def on_refused(self, size: int, now: float) -> None:
        """Take note that our own kernel refused a packet of that size. Probes that large never left either."""
        discovery = self.discovery
        if size > discovery.size:
            discarded = self._path.recovery.discard(larger_than=size - 1)
            discovery.on_probes_discarded(discarded.probes, now)
        discovery.on_refused(size, now)
        self._apply(now)

    def on_ptb(self, size: int, now: float) -> None:
        """Take what a router said, compared with what was sent; never more than a hint (RFC 8899 §4.6)."""
        self.discovery.on_ptb(size, now)
        self._apply(now)

    # what to send

    def write(self, batches: list[Batch], address: Any, now: float, write_padded: WritePadded, room: int) -> None:
        """Append probes that are due to batches, each alone. room: packets that packet numbers allow."""
        recovery = self._path.recovery
        for packet in self.discovery.packets_to_send(now, recovery.can_send()):
            if room <= 0:
                break
            room -= 1
            number = write_padded(batches, address, packet.size, now, is_mtu_probe=packet.is_probe)
            if packet.is_probe:
                self.discovery.on_probe_sent(number, packet, now)
        self._apply(now)

    def get_timer(self) -> float | None:
        """Return when handle_timer and write have something to do."""
        return self.discovery.get_timer()

    def handle_timer(self, now: float) -> None:
        """Take note that it is now."""
        self.discovery.handle_timer(now)
        self._apply(now)

    def _tell_rtt(self) -> None:
        rtt = self._path.recovery.rtt
        self.discovery.on_rtt(rtt.latest_rtt, rtt.smoothed_rtt, rtt.min_rtt, self._path.recovery.pto())

    def _apply(self, now: float) -> None:
        """Do what the newest events ask for."""
        discovery = self.discovery
        while (event := discovery.next_event()) is not None:
            self.events.append(event)
            if isinstance(event, Convicted):
                discovery.on_probes_discarded(self._on_convicted(event.new, now), now)
            elif isinstance(event, SizeChanged):
                self._on_size(event.new, now)
            elif isinstance(event, SearchEnded):
                self._on_size(event.size, now)
        if len(self.events) > MAX_EVENTS:
            del self.events[:-MAX_EVENTS]
