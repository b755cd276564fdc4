"""Path MTU discovery for one path, without a clock, sockets or a QUIC stack of its own (RFC 8899).

How a QUIC stack drives it:

    discovery = PathMtuDiscovery(PathMtuConfig(version=4, interface=1472))
    discovery.on_confirmed(now)                       once the handshake, or a path validation, has succeeded

    for packet in discovery.packets_to_send(now, recovery.can_send()):     whenever it sends, before anything else
        number = ...                                  one packet each, at once: PING, PADDING to packet.size bytes
        if packet.is_probe:                           and in this order; probes count as in flight
            discovery.on_probe_sent(number, packet, now)

    per ACK, in this order:
        discovery.on_rtt(latest_rtt, smoothed_rtt, min_rtt, pto)
        discovery.on_packets_acked(size, count, newest_sent, now)    for each size acknowledged, probes too or not
        discovery.on_probes_acked(numbers, now)                      late ones too (declared lost before)
        discovery.on_packets_lost(size, count, sent, now)            for each run of packets lost, no probes
        discovery.on_probes_lost(numbers, now)

    discovery.on_pto(largest, now)                    a probe timeout expired; largest: of what is unanswered
    discovery.on_stall(now)                           we slept, and hear only now what came meanwhile
    discovery.on_ptb(size, now)                       a validated ICMP message said so; or EMSGSIZE:
    discovery.on_refused(size, now)                   our own kernel did not take a packet

    discovery.get_timer() / discovery.handle_timer(now)     as usual; after any call the timer may have moved
    discovery.next_event()                            what happened, None at the end

    discovery.size                                    no ordinary packet may be larger
    discovery.is_holding                              while true, no ordinary packet may be larger than .base

A number is whatever identifies a packet on this path, its packet number say; it is only compared. On `Convicted`
everything larger than its `new` is to be taken out of flight and out of every queue, at once and without a
congestion signal; numbers of probes that fall to this go to `on_probes_discarded`.

All sizes are bytes of UDP payload. No call raises for what the network does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable

from qtunnel.pmtud.config import PathMtuConfig
from qtunnel.pmtud.events import PmtudEvent
from qtunnel.pmtud.probes import ProbePacket
from qtunnel.pmtud.states import State

__all__ = ["PathMtuDiscovery"]


class PathMtuDiscovery:
    """The size of packets on one path: `size`, and how it comes to be known.

    size: PLPMTU, the largest UDP payload ordinary packets may have. base: BASE_PLPMTU. state: as RFC 8899 has it.
    """

    __slots__ = ("_config", "_events", "base", "size", "state")

    def __init__(self, config: PathMtuConfig) -> None:
        self._config = config
        self._events: deque[PmtudEvent] = deque()
        self.base = config.base
        self.size = config.base
        self.state = State.DISABLED

    @property
    def is_holding(self) -> bool:
        """Whether ordinary packets larger than `base` have to wait: a queue that may be full is to drain first."""
        return False

    @property
    def is_suspicious(self) -> bool:
        """Whether a black hole is suspected and not yet confirmed."""
        return False

    # The path

    def on_confirmed(self, now: float, *, carried: int | None = None) -> None:
        """Begin: packets are known to get through. carried: the largest so far, bytes; None: of the base size.

        QUIC's handshake and its path validation carry 1200 bytes, so that the base size needs no probe.
        """

    def on_path_lost(self, now: float) -> None:
        """Stop: the path was abandoned, or nothing gets through any more. on_confirmed begins anew."""

    def on_rtt(self, latest_rtt: float, smoothed_rtt: float, min_rtt: float, pto: float) -> None:
        """Take the round-trip times, seconds; pto: the probe timeout's period without backoff."""

    # Sending

    def packets_to_send(self, now: float, window: int) -> list[ProbePacket]:
        """Return what is to be sent now, in order; mostly nothing. window: bytes that congestion control allows.

        Under suspicion it may be more than the window, which lost packets fill: one pair of packets and at most
        three probes in a round trip.
        """
        return []

    def on_probe_sent(self, number: Hashable, packet: ProbePacket, now: float) -> None:
        """Take note that a probe of packets_to_send left, and by which number it is known."""

    def get_timer(self) -> float | None:
        """Return when to call handle_timer and packets_to_send next; None: nothing is waited for."""
        return None

    def handle_timer(self, now: float) -> None:
        """Take note that it is now; harmless at any time."""

    # What became of it

    def on_probes_acked(self, numbers: Iterable[Hashable], now: float) -> None:
        """Take probes that arrived, also such as were thought lost. Unknown numbers are ignored."""

    def on_probes_lost(self, numbers: Iterable[Hashable], now: float) -> None:
        """Take probes that were declared lost."""

    def on_probes_discarded(self, numbers: Iterable[Hashable], now: float) -> None:
        """Take probes of which nobody will say what became of them."""

    def on_packets_acked(self, size: int, count: int, newest_sent: float, now: float) -> None:
        """Take ordinary packets of one size that an ACK acknowledged; newest_sent: when the newest was sent.

        Sizes up to `base` need not be reported.
        """

    def on_packets_lost(self, size: int, count: int, sent: float, now: float) -> None:
        """Take ordinary packets of one size, sent at one time, that were declared lost. As above."""

    def on_pto(self, largest: int, now: float) -> None:
        """Take note that a probe timeout expired; largest: size of the largest unanswered ordinary packet."""

    def on_stall(self, now: float) -> None:
        """Take note that we did not run for a while: what was lost up to now is no evidence.

        To be called before what came meanwhile is reported.
        """

    # Hints

    def on_ptb(self, size: int, now: float) -> None:
        """Take what a validated Packet Too Big message says, headers taken off (PL_PTB_SIZE, RFC 8899 §4.6.2).

        It only ever starts a probe.
        """

    def on_refused(self, size: int, now: float) -> None:
        """Take note that our own kernel refused a packet as too large (EMSGSIZE): a probe, or an ordinary one."""

    # What happened

    def next_event(self) -> PmtudEvent | None:
        """Return what happened next, None when that is all."""
        return self._events.popleft() if self._events else None

    def why(self) -> list[str]:
        """Return in sentences how the present size came about, oldest first."""
        return []
