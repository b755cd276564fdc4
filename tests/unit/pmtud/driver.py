"""A path for unit tests of path MTU discovery: packets up to a limit arrive, and are answered in a round trip."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from qtunnel.pmtud.config import PathMtuConfig
from qtunnel.pmtud.discovery import PathMtuDiscovery
from qtunnel.pmtud.events import PmtudEvent
from qtunnel.pmtud.probes import ProbePacket, Purpose
from qtunnel.pmtud.states import State

RTT = 0.1
START = 1000.0
WINDOW = 1_000_000


@dataclass
class Driver:
    """Drives a discovery as a QUIC stack would. limit: the largest UDP payload that gets through; bytes."""

    config: PathMtuConfig = field(default_factory=PathMtuConfig)
    limit: int = 1472
    window: int = WINDOW
    now: float = START
    loses: Callable[[ProbePacket], bool] = lambda _: False

    def __post_init__(self) -> None:
        self.discovery = PathMtuDiscovery(self.config)
        self.sent: list[ProbePacket] = []
        self.flights: list[list[ProbePacket]] = []
        self.events: list[PmtudEvent] = []
        self._number = 0

    def confirm(self, carried: int | None = None) -> None:
        self.discovery.on_rtt(RTT, RTT, RTT, 3 * RTT)
        self.discovery.on_confirmed(self.now, carried=carried)

    def send(self) -> list[tuple[int, ProbePacket]]:
        """Take out what is to be sent now. Return the probes among it with their numbers."""
        packets = self.discovery.packets_to_send(self.now, self.window)
        probes = []
        for packet in packets:
            self._number += 1
            self.sent.append(packet)
            if packet.is_probe:
                self.discovery.on_probe_sent(self._number, packet, self.now)
                probes.append((self._number, packet))
        if packets:
            self.flights.append(packets)
        return probes

    def answer(self, probes: list[tuple[int, ProbePacket]]) -> None:
        """Acknowledge what got through, and declare the rest lost."""
        arrived = [number for number, packet in probes if packet.size <= self.limit and not self.loses(packet)]
        lost = [number for number, _ in probes if number not in arrived]
        if arrived:
            self.discovery.on_probes_acked(arrived, self.now)
        if lost:
            self.discovery.on_probes_lost(lost, self.now)
        self.take_events()

    def take_events(self) -> None:
        while (event := self.discovery.next_event()) is not None:
            self.events.append(event)

    def round_trip(self) -> None:
        """Send what is due, and let a round trip pass."""
        self.discovery.handle_timer(self.now)
        probes = self.send()
        self.now += RTT
        self.answer(probes)

    def run(self, limit: int = 100) -> None:
        """Go on until the search has ended."""
        for _ in range(limit):
            if self.discovery.state is State.SEARCH_COMPLETE:
                return
            self.round_trip()
        raise AssertionError(f"no end after {limit} round trips: {self.discovery.state}")

    def found(self, limit: int | None = None) -> Driver:
        """Let the search end; limit: another one than the path has. Return self."""
        self.limit = self.limit if limit is None else limit
        self.confirm()
        self.run()
        return self

    def until(self, condition: Callable[[], bool], limit: int = 50) -> None:
        """Go on for round trips until a condition holds."""
        for _ in range(limit):
            if condition():
                return
            self.round_trip()
        raise AssertionError(f"not after {limit} round trips")

    def lose_packets(self, count: int = 3, size: int | None = None, sent: float | None = None) -> None:
        """Report ordinary packets of the present size as lost."""
        self.discovery.on_packets_lost(size or self.discovery.size, count, sent or self.now, self.now)
        self.take_events()

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    def purposes(self, flight: int = -1) -> list[Purpose]:
        return [packet.purpose for packet in self.flights[flight]]
