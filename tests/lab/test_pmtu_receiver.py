"""netlab.pmtu.receiver: which ACKs it sends. Times in seconds."""

import random
from itertools import pairwise

from netlab.pmtu.conditions import Conditions
from netlab.pmtu.receiver import MAX_RANGES, Receiver


def a_receiver(**settings: object) -> Receiver:
    return Receiver(Conditions(seed=1, **settings))


def test_every_so_many_packets_are_acknowledged():
    receiver = a_receiver(ack_every=3)
    assert [receiver.receive(number, 1.0) for number in range(2)] == [None, None]
    assert receiver.receive(2, 1.0) == (1.0, [(0, 2)], 0.0)
    assert receiver.ack_due is None


def test_fewer_are_acknowledged_after_the_longest_delay():
    receiver = a_receiver(ack_every=10, max_ack_delay=0.025)
    receiver.receive(0, 1.0)
    assert receiver.ack_due == 1.025
    _, ranges, delay = receiver.on_due(1.025)
    assert (ranges, round(delay, 6)) == ([(0, 0)], 0.025)


def test_a_gap_is_acknowledged_at_once_or_not():
    receiver = a_receiver(ack_every=10)
    receiver.receive(0, 1.0)
    assert receiver.receive(2, 1.0) == (1.0, [(2, 2), (0, 0)], 0.0)
    receiver = a_receiver(ack_every=10, ack_at_gaps=False)
    receiver.receive(0, 1.0)
    assert receiver.receive(2, 1.0) is None


def test_ranges_are_those_of_a_set_in_any_order():
    rnd = random.Random(5)
    receiver = a_receiver(ack_every=1)
    numbers = rnd.sample(range(40), 25)
    ack = None
    for number in numbers * 2:
        ack = receiver.receive(number, 1.0)
    assert ack is not None
    found = {number for first, last in ack[1] for number in range(first, last + 1)}
    assert found == set(numbers)
    assert len(ack[1]) <= MAX_RANGES
    assert all(later[1] + 1 < earlier[0] for earlier, later in pairwise(ack[1]))
