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
    discovery.why(now)                                the same in sentences, for people

    discovery.size                                    no ordinary packet may be larger
    discovery.is_holding                              while true, no ordinary packet may be larger than .base

A number is whatever identifies a packet on this path, its packet number say; it is only compared. On `Convicted`
everything larger than its `new` is to be taken out of flight and out of every queue, at once and without a
congestion signal; numbers of probes that fall to this go to `on_probes_discarded`.

All sizes are bytes of UDP payload. No call raises for what the network does.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from qtunnel.pmtud.base_probe import BaseProbe
from qtunnel.pmtud.black_hole import BlackHoleDetector
from qtunnel.pmtud.config import MAX_PROBES, PROBE_TIMER, PathMtuConfig
from qtunnel.pmtud.events import Acquitted, Convicted, SearchEnded, Suspected, Unusable
from qtunnel.pmtud.probes import SMALL_SIZE, ProbePacket, Purpose
from qtunnel.pmtud.raise_timer import RaiseTimer
from qtunnel.pmtud.round_trips import RoundTrips
from qtunnel.pmtud.search import ParallelSearch
from qtunnel.pmtud.sent_probes import SentProbe, SentProbes
from qtunnel.pmtud.sequential import SequentialSearch
from qtunnel.pmtud.sizes import base_plpmtu
from qtunnel.pmtud.standing import Standing
from qtunnel.pmtud.states import State, Trigger

__all__ = ["PathMtuDiscovery", "earlier"]

TRAILERS: Final = 2
"""Small packets after a flight of probes."""
SEARCHES: Final = {"parallel": ParallelSearch, "sequential": SequentialSearch}


def earlier(one: float | None, other: float | None) -> float | None:
    """Return the earlier of two times; None is never."""
    if one is None or (other is not None and other < one):
        return other
    return one


class PathMtuDiscovery(Standing):
    """The size of packets on one path: `size`, and how it comes to be known.

    base: BASE_PLPMTU. probes_sent, probe_bytes, probes_lost, hints_ignored: counted from the start.
    """

    __slots__ = (
        "_base_probe",
        "_blocked",
        "_config",
        "_detector",
        "_last_flight",
        "_probes",
        "_raise_timer",
        "_search",
        "_trips",
        "_trusted_from",
        "base",
        "hints_ignored",
        "probe_bytes",
        "probes_lost",
        "probes_sent",
    )

    def __init__(self, config: PathMtuConfig) -> None:
        super().__init__(config.start, config.version)
        self._config = config
        self._trips = RoundTrips()
        self._probes = SentProbes()
        self.base = config.base
        self.probes_sent = 0
        self.probe_bytes = 0
        self.probes_lost = 0
        self.hints_ignored = 0
        self._detector = BlackHoleDetector(self.base, config.version, self._trips, self._probes)
        self._search = self._new_search(self.base)
        self._base_probe = BaseProbe()
        self._raise_timer = RaiseTimer(config.raise_interval)
        self._last_flight = float("-inf")
        self._blocked = False
        # Probes sent before say nothing: the path was another one then.
        self._trusted_from = float("-inf")

    def _new_search(self, low: int) -> ParallelSearch:
        return SEARCHES[self._config.search](low, self._config.most, self._config.version)

    @property
    def is_holding(self) -> bool:
        """Whether ordinary packets larger than `base` have to wait: they may get lost, or make others."""
        return self._detector.is_holding

    @property
    def is_suspicious(self) -> bool:
        """Whether a black hole is suspected and not yet confirmed."""
        return self._detector.trial is not None

    # The path

    def on_confirmed(self, now: float, *, carried: int | None = None) -> None:
        """Begin: packets are known to get through. carried: the largest so far, bytes; None: 1200.

        QUIC's handshake and its path validation carry 1200 bytes, so that the base size needs no probe; a floor
        above does. Without effect unless the state is DISABLED, or where the size was told.
        """
        config = self._config
        if config.told is not None:
            self._say(f"the link MTU was told: {self._story.name(self.size)}", now)
            return
        if self.state is not State.DISABLED:
            return
        self._enter(Trigger.CONFIRMED, now)
        if (base_plpmtu(config.version) if carried is None else carried) >= self.base:
            self._begin_search(now)
        else:
            self._base_probe.ask(now)

    def on_path_lost(self, now: float) -> None:
        """Stop: the path was abandoned, or nothing gets through any more. on_confirmed begins anew."""
        if self.state is not State.DISABLED:
            self._enter(Trigger.PATH_LOST, now)
        self._probes.clear()
        self._detector.stop()
        self._raise_timer.stop()
        self._base_probe.stop()
        self._trusted_from = now
        if self._config.told is None:
            self._set_size(self.base, now, "the path was lost")

    def on_rtt(self, latest_rtt: float, smoothed_rtt: float, min_rtt: float, pto: float) -> None:
        """Take the round-trip times, seconds; pto: the probe timeout's period without backoff."""
        self._trips.update(latest_rtt, smoothed_rtt, min_rtt, pto)

    def _begin_search(self, now: float) -> None:
        config = self._config
        self._search = self._new_search(self.base)
        self._enter(Trigger.BASE_ACKED, now)
        if config.remembered is not None and self.base < config.remembered <= config.most:
            self._search.remember(config.remembered)
        self._end_search_if_complete(now)

    # Sending

    def packets_to_send(self, now: float, window: int) -> list[ProbePacket]:
        """Return what is to be sent now, in order; mostly nothing. window: bytes that congestion control allows.

        Under suspicion it may be more than the window, which lost packets fill: a pair, and with it at most
        three probes in a round trip.
        """
        self._blocked = False
        if self._detector.trial is not None:
            packets = self._detector.packets_to_send(now, window)
        elif self._base_probe.due_at is not None:
            packets = self._ask_for_base(now)
        elif self._wants_flight() and now >= self._next_flight_at():
            packets = self._flight(now, window)
        else:
            return []
        for packet in packets:
            if packet.is_probe:
                self.probes_sent += 1
                self.probe_bytes += packet.size
        return packets

    def _ask_for_base(self, now: float) -> list[ProbePacket]:
        if not self._base_probe.take(now):
            return []
        return [ProbePacket(self.base, Purpose.BASE), *self._trailers()]

    def _flight(self, now: float, window: int) -> list[ProbePacket]:
        sizes = self._search.next_flight(window)
        if not sizes:
            self._blocked = True
            return []
        self._last_flight = now
        self._say(f"flight {self._search.flights} asked for link MTU {self._story.names(sizes)}", now)
        return [*(ProbePacket(size, Purpose.SEARCH, self._search) for size in sizes), *self._trailers()]

    @staticmethod
    def _trailers() -> list[ProbePacket]:
        return [ProbePacket(SMALL_SIZE, Purpose.TRAILER) for _ in range(TRAILERS)]

    def _wants_flight(self) -> bool:
        return self.state is State.SEARCHING and not self._probes.waits_for(self._search)

    def _next_flight_at(self) -> float:
        return self._last_flight + self._trips.shortest

    def on_probe_sent(self, number: Hashable, packet: ProbePacket, now: float) -> None:
        """Take note that a probe of packets_to_send left, and by which number it is known."""
        self._probes.add(number, SentProbe(packet, now))

    # Time

    def get_timer(self) -> float | None:
        """Return when to call handle_timer and packets_to_send next; None: nothing is waited for."""
        due = earlier(self._detector.get_timer(), earlier(self._raise_timer.due_at, self._base_probe.due_at))
        if self._probes:
            oldest = self._probes.oldest_sent()
            due = earlier(due, None if oldest is None else oldest + PROBE_TIMER)
        if self.state is State.SEARCHING and self._detector.trial is None and not self._blocked:
            due = earlier(due, self._next_flight_at() if self._wants_flight() else None)
        return due

    def handle_timer(self, now: float) -> None:
        """Take note that it is now; harmless at any time."""
        expired = self._probes.sent_until(now - PROBE_TIMER)
        if expired:
            self.on_probes_lost(expired, now)
        reason = self._detector.on_timer(now)
        if reason is not None:
            self._suspect(reason, now)
        if self._raise_timer.take(now):
            self._search.look_again()
            self._say("the raise timer expired: the path may carry more by now", now)
            self._enter(Trigger.RAISE_TIMER, now)

    # What became of it

    def on_probes_acked(self, numbers: Iterable[Hashable], now: float) -> None:
        """Take probes that arrived, also such as were thought lost. Unknown numbers are ignored."""
        for number in numbers:
            probe = self._probes.take_acked(number)
            if probe is None or probe.time_sent < self._trusted_from:
                continue
            if self._detector.on_probe_acked(probe, now):
                self._acquit(f"a probe of {self._name(probe.packet.size)} arrived", now)
            if probe.packet.purpose is not Purpose.COMPANION:
                self._on_proved(probe.packet.size, now)
        self._judge(now)

    def _on_proved(self, size: int, now: float) -> None:
        """Take note that a probe of a size got through."""
        if self._detector.trial is not None:
            return
        if self.state in (State.BASE, State.ERROR):
            if size >= self.base:
                self._base_probe.stop()
                self._search.on_acked(size)
                self._enter(Trigger.BASE_ACKED, now)
                self._raise_to(self._search.low, now)
                self._end_search_if_complete(now)
            return
        if self.state is State.DISABLED or not self._search.on_acked(size):
            return
        if self.state is State.SEARCH_COMPLETE:
            self._raise_timer.stop()
            self._enter(Trigger.SIZE_ACKED, now)
        self._raise_to(self._search.low, now)
        self._end_search_if_complete(now)

    def on_probes_lost(self, numbers: Iterable[Hashable], now: float) -> None:
        """Take probes that were declared lost."""
        for number in numbers:
            probe = self._probes.take_lost(number)
            if probe is None or probe.time_sent < self._trusted_from:
                continue
            self.probes_lost += 1
            if probe.pair is not None:
                self._detector.on_pair_lost(probe)
            elif probe.is_excused:
                continue
            elif probe.search is not None:
                probe.search.on_lost(probe.packet.size)
            else:
                self._on_base_lost(now)
        self._judge(now)
        self._end_search_if_complete(now)

    def on_probes_discarded(self, numbers: Iterable[Hashable], now: float) -> None:
        """Take probes of which nobody will say what became of them."""
        for number in numbers:
            probe = self._probes.take_lost(number)
            is_base = probe is not None and probe.packet.purpose is Purpose.BASE
            if is_base and self.state in (State.BASE, State.ERROR):
                self._base_probe.on_discarded(now)

    def _on_base_lost(self, now: float) -> None:
        if self.state not in (State.BASE, State.ERROR):
            return
        if self._base_probe.on_lost(now) and self.state is State.BASE:
            self._enter(Trigger.BASE_FAILED, now)
            reason = f"{MAX_PROBES} probes of {self._name(self.base)} were lost"
            unusable = Unusable(time=now, size=self.base, reason=reason)
            self._say(f"{reason}: the path is of no use", now, unusable)

    def on_packets_acked(self, size: int, count: int, newest_sent: float, now: float) -> None:
        """Take ordinary packets of one size that an ACK acknowledged; newest_sent: when the newest was sent.

        Sizes up to `base` need not be reported.
        """
        if size > self.base and self._detector.on_packets_acked(size, count, newest_sent):
            self._acquit(f"a packet of {self._name(size)} arrived", now)

    def on_packets_lost(self, size: int, count: int, sent: float, now: float) -> None:
        """Take ordinary packets of one size, sent at one time, that were declared lost. As above."""
        if self.base < size <= self.size:
            reason = self._detector.on_packets_lost(size, count, sent, now)
            if reason is not None:
                self._suspect(reason, now)

    def on_pto(self, largest: int, now: float) -> None:
        """Take note that a probe timeout expired; largest: size of the largest unanswered ordinary packet."""
        reason = self._detector.on_pto(largest)
        if reason is not None:
            self._suspect(reason, now, is_silent=True)

    def on_stall(self, now: float) -> None:
        """Take note that we did not run for a while: what was lost up to now is no evidence.

        To be called before what came meanwhile is reported.
        """
        self._detector.excuse(now)
        self._probes.excuse()

    # Hints

    def on_ptb(self, size: int, now: float) -> None:
        """Take what a validated Packet Too Big message says, headers taken off (PL_PTB_SIZE, RFC 8899 §4.6.2).

        It only ever starts a probe.
        """
        if self._config.told is not None or not self.base <= size < self._config.most:
            self.hints_ignored += 1
        elif size < self.size:
            if not self._is_detecting or not self._detector.on_hint(size, now):
                self.hints_ignored += 1
                return
            self._suspect(f"a router says that {self._name(size)} is the most", now, is_silent=True)
        elif self.state is State.SEARCHING and size < self._search.high:
            self._search.suggest(max(size, self.size + 1))
        else:
            self.hints_ignored += 1

    def on_refused(self, size: int, now: float) -> None:
        """Take note that our own kernel refused a packet as too large (EMSGSIZE): a probe, or an ordinary one."""
        if self._detector.trial is not None:
            if size >= self._detector.trial.size:
                self._detector.on_refused()
            else:
                self._detector.below.on_lost(size)
            self._judge(now)
        elif size > self.size:
            self._search.on_lost(size)
            self._end_search_if_complete(now)
        elif size > self.base:
            self._suspect("our own kernel refuses packets of the size", now, is_silent=True)

    # Black holes

    @property
    def _is_detecting(self) -> bool:
        return (
            self._config.black_hole != "off"
            and self.state in (State.SEARCHING, State.SEARCH_COMPLETE)
            and self.size > self.base
        )

    def _suspect(self, reason: str, now: float, *, is_silent: bool = False) -> None:
        if not self._is_detecting:
            self._detector.evidence.clear()
            return
        trial = self._detector.suspect(self.size, reason, now, is_silent=is_silent)
        text = f"suspicion: {reason}; {trial.needed} pairs of packets have to agree"
        self._story.suspect(now, self.size, text)
        self._events.append(Suspected(time=now, size=self.size, reason=reason))
        if self._config.black_hole == "loss_count":
            self._convict(now)

    def _acquit(self, reason: str, now: float) -> None:
        trial = self._detector.trial
        assert trial is not None
        self._story.dismiss(now, self.size, f"no black hole: {reason}")
        self._events.append(Acquitted(time=now, size=trial.size, reason=reason))
        self._detector.acquit(now)
        self._end_search_if_complete(now)

    def _judge(self, now: float) -> None:
        if self._detector.is_convicted:
            self._convict(now)

    def _convict(self, now: float) -> None:
        trial, config = self._detector.trial, self._config
        assert trial is not None
        search = self._detector.convict()
        search.rule_out(trial.size, config.most)
        self._search = search
        self._raise_timer.on_lowered(now)
        self._trusted_from = trial.since
        new = max(trial.proved, self.base)
        pairs = trial.count(self._trips.shortest)
        reason = (
            f"{pairs} large packets in a row were lost while the small ones sent with them arrived; "
            f"the largest that got through since is of {self._name(new)}"
        )
        self._events.append(
            Convicted(
                time=now, old=trial.size, new=new, suspected_at=trial.since, pairs=pairs, reason=trial.reason
            )
        )
        self._set_size(new, now, reason)
        self._enter(Trigger.BLACK_HOLE, now)
        if trial.proved >= self.base:
            self._enter(Trigger.BASE_ACKED, now)
            self._end_search_if_complete(now)
        else:
            self._base_probe.ask(now)

    # State and size

    def _end_search_if_complete(self, now: float) -> None:
        search = self._search
        if self.state is not State.SEARCHING or self._detector.trial is not None or not search.is_complete:
            return
        at_most = search.low >= self._config.most
        limit = self._config.limited_by
        reason = f"no more is allowed by the {limit}" if at_most else "one byte more does not get through"
        self._enter(Trigger.SEARCH_ENDED, now)
        end = SearchEnded(
            time=now,
            size=self.size,
            probes=self.probes_sent,
            probe_bytes=self.probe_bytes,
            flights=search.flights,
            reason=reason,
        )
        self._say(f"{self._name(self.size)} is the end: {reason}", now, end)
        if not at_most:
            self._raise_timer.start(now)

    def _raise_to(self, size: int, now: float) -> None:
        if size > self.size:
            self._set_size(size, now, f"a probe of {self._name(size)} arrived")
