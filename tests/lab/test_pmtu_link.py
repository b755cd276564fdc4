"""netlab.pmtu.link: what a simulated path does with packets. Bytes of UDP payload, seconds."""

import random
from itertools import pairwise

import pytest

from netlab.pmtu.conditions import Conditions
from netlab.pmtu.link import HEADERS, Link

RATE = 100_000


def a_link(**settings: object) -> Link:
    return Link(Conditions(seed=1, rate=RATE, rtt=0.1, **settings), random.Random(1), 0.0)


def test_a_packet_takes_its_time_on_the_wire_and_half_the_round_trip():
    link = a_link()
    for number in (1, 2):
        assert link.send(1472, 5.0, is_probe=False) == pytest.approx(5.0 + number * (1472 + HEADERS) / RATE + 0.05)


def test_a_queue_limited_in_packets_drops_small_ones_too():
    link = a_link(queue_packets=3)
    sizes = [1472] * 4 + [64]
    assert [link.send(size, 5.0, is_probe=False) is not None for size in sizes] == [True] * 4 + [False]
    assert link.overflowed == 1
    assert link.send(64, 5.0 + 1500 / RATE, is_probe=False) is not None


def test_a_queue_limited_in_bytes_has_room_for_small_ones_still():
    link = a_link(queue_packets=None, queue_bytes=3100)
    assert [link.send(size, 5.0, is_probe=False) is not None for size in (1472, 1472, 1472, 64)] == [
        True,
        True,
        False,
        True,
    ]


def test_after_it_became_narrower_larger_packets_vanish_and_others_do_not():
    link = a_link(shrinks=(1.0, 1400))
    assert link.send(1472, 0.5, is_probe=False) is not None
    assert link.send(1401, 2.0, is_probe=True) is None
    assert link.first_too_big is None  # a probe says nothing of what the user met
    assert link.send(1401, 3.0, is_probe=False) is None
    assert link.send(1400, 3.0, is_probe=False) is not None
    assert (link.first_too_big, link.too_big) == (3.0, 2)


def test_random_losses_are_as_frequent_as_said_and_come_together_if_said():
    link = a_link(loss=0.1, queue_packets=None)
    lost = [link.send(64, float(at), is_probe=False) is None for at in range(5000)]
    assert 400 < sum(lost) < 600
    link = a_link(loss=0.1, burst_loss=0.5, queue_packets=None)
    lost = [link.send(64, float(at), is_probe=False) is None for at in range(5000)]
    after = [second for first, second in pairwise(lost) if first]
    assert 0.4 < sum(after) / len(after) < 0.6


def test_others_share_the_rate_and_back_off():
    link = a_link(competitors=2, queue_packets=20)
    arrived = [link.send(64, at / 10, is_probe=False) for at in range(600)]
    delays = [each - at / 10 - 0.05 for at, each in enumerate(arrived) if each is not None]
    assert link.overflowed < 150
    assert max(delays) > 10 * 1500 / RATE  # they fill the queue, too


def test_a_blind_flow_sends_half_a_second_and_is_silent_for_one():
    link = a_link(blast=0.9, queue_packets=None)
    waits: dict[bool, list[float]] = {True: [], False: []}
    for step in range(1, 3000):
        at = step / 100
        arrival = link.send(64, at, is_probe=False)
        assert arrival is not None
        waits[at % 1.5 < 0.5].append(arrival - at - 0.05 - (64 + HEADERS) / RATE)
    assert sum(waits[True]) / len(waits[True]) > 0.005
    assert sum(waits[False]) / len(waits[False]) < 0.001
