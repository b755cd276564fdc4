"""Segmented sends that a peer loses are given up (A58), and what a path loses is never taken for it."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from qtunnel.burst import Transmit
from qtunnel.quic.segmented_sends import (
    BURSTS_OF_A_KIND,
    FIRST_PAUSE_S,
    SUSPICION_S,
    SUSPICIOUS_RUNS,
    TRIAL_S,
    GsoVerdict,
    SegmentedSends,
)
from qtunnel.recovery.sent_packets import DATA, SentRun
from tests.sim.quic_pair import QuicPair
from tests.unit.quic.planes import open_pair, plane_of, received, settings

NOW = 1000.0
HOST = "192.0.2.1"


def run(first: int, count: int = 10) -> SentRun:
    return SentRun(first, count, 1400, NOW, DATA, None, (0, 0.0, 0.0, 0, False), 0)


class Bursts:
    """Sends bursts one after the other; lose says which bits of one are lost, given whether it went singly."""

    def __init__(self, *, verdict: GsoVerdict | None = None, seed: int = 1) -> None:
        self.verdict = verdict or GsoVerdict()
        self.segmented = SegmentedSends(self.verdict, seed=seed)
        self.now = NOW
        self.modes: list[bool] = []
        self._numbers = itertools.count(0, 100)

    def send(self, lose: Callable[[bool], int], *, count: int = 10, host: str = HOST) -> bool:
        is_singly = self.segmented.sends_singly(0)
        self.modes.append(is_singly)
        sent = run(next(self._numbers), count)
        if self.segmented.is_trying:
            self.segmented.on_sent([sent], is_singly=is_singly)
        self.now += 0.01
        lost = lose(is_singly)
        sent.outstanding = 0
        if lost:
            self.segmented.on_lost([(sent, lost)], self.now)
        self.segmented.judge(self.now, host)
        return is_singly

    def begin_trial(self) -> None:
        for _ in range(SUSPICIOUS_RUNS):
            self.send(lambda _: ALL_BUT_FIRST)
        assert self.segmented.is_trying


ALL_BUT_FIRST = 0b1111111110
ALL = 0b1111111111


@pytest.mark.parametrize("mask", [ALL, ALL_BUT_FIRST, 0b1111100000])
def test_a58_batches_lost_while_what_goes_alone_arrives_end_segmenting(
    mask: int, caplog: pytest.LogCaptureFixture
) -> None:
    bursts = Bursts()
    with caplog.at_level(logging.WARNING):
        for _ in range(60):
            bursts.send(lambda singly: 0 if singly else mask)
    assert bursts.segmented.is_off
    assert bursts.verdict.is_off
    assert (bursts.verdict.trials, bursts.verdict.given_up) == (1, 1)
    assert sum(bursts.modes[SUSPICIOUS_RUNS : SUSPICIOUS_RUNS + 2 * BURSTS_OF_A_KIND]) == BURSTS_OF_A_KIND
    assert all(bursts.modes[SUSPICIOUS_RUNS + 2 * BURSTS_OF_A_KIND :])
    (line,) = caplog.records
    assert line.getMessage().startswith("192.0.2.1 gets datagrams that are sent alone")


def test_the_order_of_a_trial_is_drawn_by_lot() -> None:
    orders = set()
    for seed in range(5):
        bursts = Bursts(seed=seed)
        for _ in range(SUSPICIOUS_RUNS + 2 * BURSTS_OF_A_KIND):
            bursts.send(lambda singly: 0 if singly else ALL)
        orders.add(tuple(bursts.modes))
    assert len(orders) == 5


@pytest.mark.parametrize("mask", [ALL, ALL_BUT_FIRST])
def test_a58_losses_of_either_kind_acquit_and_the_next_trial_comes_later(mask: int) -> None:
    bursts = Bursts()
    for _ in range(200):
        bursts.send(lambda _: mask)
    assert not bursts.segmented.is_off
    assert bursts.verdict.trials == 1
    bursts.now += FIRST_PAUSE_S
    bursts.begin_trial()
    assert bursts.verdict.trials == 2


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a58_bursts_lost_by_chance_are_never_taken_for_it(probability: float) -> None:
    chance = random.Random(7)
    for seed in range(20):
        bursts = Bursts(seed=seed)
        for _ in range(300):
            bursts.send(lambda _: ALL if chance.random() < probability else 0)
            bursts.now += 1
        assert not bursts.segmented.is_off


def test_a_trial_ends_as_soon_as_it_acquits() -> None:
    bursts = Bursts()
    bursts.begin_trial()
    for _ in range(2 * BURSTS_OF_A_KIND):
        bursts.send(lambda _: 0)
        if not bursts.segmented.is_trying:
            break
    assert len(bursts.modes) < SUSPICIOUS_RUNS + BURSTS_OF_A_KIND


def test_single_packets_prove_nothing_and_use_up_no_lot() -> None:
    bursts = Bursts()
    for _ in range(100):
        bursts.send(lambda _: 1, count=1)
    assert bursts.verdict.trials == 0
    bursts.begin_trial()
    for _ in range(100):
        bursts.send(lambda _: 1, count=1)
    assert bursts.segmented.is_trying


def test_batches_lost_now_and_then_raise_no_suspicion() -> None:
    bursts = Bursts()
    for _ in range(50):
        bursts.send(lambda _: ALL)
        bursts.now += SUSPICION_S / 2
    assert bursts.verdict.trials == 0


def test_a_trial_with_too_little_to_send_is_void() -> None:
    bursts = Bursts()
    bursts.begin_trial()
    bursts.now += TRIAL_S + 1
    bursts.segmented.judge(bursts.now, HOST)
    assert not bursts.segmented.is_trying
    assert not bursts.segmented.sends_singly(0)


def test_after_a_probe_timeout_datagrams_go_alone() -> None:
    segmented = SegmentedSends(GsoVerdict(), seed=1)
    assert segmented.sends_singly(1)
    assert not segmented.sends_singly(0)


def test_a58_one_client_of_a_server_slows_down_nobody_else() -> None:
    verdict = GsoVerdict(hosts_needed=2)
    others = SegmentedSends(verdict, seed=3)
    for host, is_off in ((HOST, False), (HOST, False), ("192.0.2.2", True)):
        bursts = Bursts(verdict=verdict)
        for _ in range(60):
            bursts.send(lambda singly: 0 if singly else ALL, host=host)
        assert bursts.segmented.is_off
        assert verdict.is_off is is_off
        assert others.sends_singly(0) is is_off


# whole connections


class Kernel(QuicPair):
    """A pair of which the client's kernel spoils segmented sends: all of each, or all but the first datagram."""

    spoils_first = False
    is_sound = True

    def _send(self, transmit: Transmit, *, to_server: bool) -> None:
        size = transmit.segment_size
        if self.is_sound or not to_server or size is None or size >= len(transmit.data):
            super()._send(transmit, to_server=to_server)
        elif not self.spoils_first:
            super()._send(Transmit(transmit.data[:size], transmit.remote), to_server=to_server)


def upload(pair: QuicPair, stream_id: int, seconds: float) -> int:
    """Keep the client's queue filled for a while; return how many packets arrived."""
    before = len(received(pair.server_events))
    end = pair.now + seconds
    while pair.now < end:
        if pair.client.has_room_for_read():
            pair.client.send_packets(stream_id, [b"E" + bytes(1399)] * 40, pair.now)
        pair.run(0.01)
    return len(received(pair.server_events)) - before


@pytest.mark.parametrize("control", ["cubic", "bbr"])
@pytest.mark.parametrize("spoils_first", [False, True], ids=["all but the first", "all"])
def test_a58_a_connection_recovers_from_a_kernel_that_spoils_segments(spoils_first: bool, control: str) -> None:
    pair = Kernel(**settings(congestion_control=control))  # type: ignore[arg-type]
    pair.spoils_first = spoils_first
    pair.is_sound = False  # from the first datagram of the handshake on
    stream_id, _ = open_pair(pair)
    segmented = plane_of(pair.client).segmented
    for _ in range(10):
        if segmented.is_off:
            break
        upload(pair, stream_id, 1)
    assert segmented.is_off
    assert segmented.verdict.given_up == 1
    assert pair.client.has_given_up_gso
    lost = pair.client.stats().lost
    arrived = upload(pair, stream_id, 5)
    assert arrived > 500
    assert pair.client.stats().lost - lost < arrived / 10
    assert not pair.server_connection.has_given_up_gso  # type: ignore[union-attr]


class DropTail:
    """A bottleneck with room for so many datagrams, which cuts off the ends of bursts."""

    def __init__(self, rate_bps: float, room: int) -> None:
        self.rate_bps = rate_bps
        self.room = room
        self.lost = 0
        self.pair: QuicPair | None = None
        self._free_at = 0.0

    def __call__(self, data: bytes, to_server: bool) -> bool:
        if not to_server or self.pair is None:
            return False
        now = self.pair.now
        each = len(data) * 8 / self.rate_bps
        self._free_at = max(self._free_at, now)
        if self._free_at - now > self.room * len(data) * 8 / self.rate_bps:
            self.lost += 1
            return True
        self._free_at += each
        return False


def assert_was_tried_and_kept(pair: QuicPair) -> None:
    segmented = plane_of(pair.client).segmented
    assert segmented.verdict.trials >= 1
    assert not segmented.is_off


@pytest.mark.parametrize("room", [1, 10])
@pytest.mark.parametrize("control", ["cubic", "bbr", "none"])
@pytest.mark.seeds(ci=1, long=50)
def test_a58_a_short_queue_that_cuts_off_bursts_is_not_taken_for_it(control: str, room: int, seed: int) -> None:
    bottleneck = DropTail(2e6, room)
    pair = QuicPair(**settings(congestion_control=control), lose=bottleneck, delay=0.02 + seed / 1000)  # type: ignore[arg-type]
    stream_id, _ = open_pair(pair)
    bottleneck.pair = pair
    upload(pair, stream_id, 10)
    assert bottleneck.lost > 20
    assert_was_tried_and_kept(pair)


def test_a58_heavy_loss_at_random_and_outages_are_not_taken_for_it(seed: int) -> None:
    chance = random.Random(seed)

    def lose(_data: bytes, to_server: bool) -> bool:
        is_outage = (pair.now * 2) % 1 < 0.4
        return to_server and is_open and (is_outage or chance.random() < 0.2)

    is_open = False
    pair: Any = QuicPair(**settings(), lose=lose)  # type: ignore[arg-type]
    stream_id, _ = open_pair(pair)
    is_open = True
    upload(pair, stream_id, 20)
    assert pair.client.stats().lost > 20
    assert_was_tried_and_kept(pair)
