"""The model of a link in virtual time: delay, rate, queue, loss, reordering, and changes under way."""

import math

from hypothesis import given
from hypothesis import strategies as st

from netlab.emulator.line import Fate, Line
from netlab.shape import Shape

FULL = 1500


def release_all(line: Line) -> list[tuple[int, float]]:
    """Return each packet with the time it went on, by asking at each due time."""
    gone = []
    while (due := line.next_due()) is not None:
        released = line.release(due)
        assert released is not None
        gone.append((released[0], due))
    return gone


def test_packet_on_an_idle_link_takes_its_own_time_and_the_delay():
    line = Line(Shape(rate_bps=100e6, delay_s=0.020))
    assert line.arrive(1, FULL, 5.0) is Fate.QUEUED
    assert line.next_due() == 5.0 + 1514 * 8 / 100e6 + 0.020


def test_rate_counts_the_ethernet_header():
    line = Line(Shape(rate_bps=100e6))
    for packet in range(100):
        line.arrive(packet, FULL, 0.0)
    assert math.isclose(release_all(line)[-1][1], 100 * 1514 * 8 / 100e6)


def test_nothing_goes_on_before_it_is_due():
    line = Line(Shape(delay_s=0.020))
    line.arrive(1, FULL, 1.0)
    assert line.release(1.0199) is None
    assert line.release(1.0201) is not None


def test_release_names_the_last_packet_that_is_due_and_how_late_the_first_is():
    line = Line(Shape(delay_s=0.010))
    for packet, at in ((1, 0.000), (2, 0.001), (3, 0.005)):
        line.arrive(packet, FULL, at)
    released = line.release(0.012)
    assert released is not None
    assert released[0] == 2
    assert math.isclose(released[1], 0.002)
    assert line.next_due() == 0.015


def test_limit_in_packets_counts_those_in_the_delay_line():
    line = Line(Shape(rate_bps=1e9, delay_s=0.1, limit_packets=10))
    fates = [line.arrive(packet, FULL, 0.0) for packet in range(12)]
    assert fates == [Fate.QUEUED] * 10 + [Fate.DROPPED] * 2
    assert line.overflowed == 2


def test_room_in_the_queue_is_judged_as_of_the_arrival_even_if_nothing_was_released_yet():
    line = Line(Shape(delay_s=0.010, limit_packets=1))
    assert line.arrive(1, FULL, 0.000) is Fate.QUEUED
    # The first has left by now, though this process has not come round to releasing it.
    assert line.arrive(2, FULL, 0.011) is Fate.QUEUED
    assert line.arrive(3, FULL, 0.012) is Fate.DROPPED


def test_limit_in_bytes_counts_what_waits_for_the_wire_alone():
    line = Line(Shape(rate_bps=8e6, delay_s=1.0, limit_bytes=3 * 1514))
    fates = [line.arrive(packet, FULL, 0.0) for packet in range(4)]
    assert fates == [Fate.QUEUED] * 3 + [Fate.DROPPED]
    # One packet's time later one has left the queue, though the delay line still has it.
    assert line.arrive(9, FULL, 1514 * 8 / 8e6) is Fate.QUEUED


def test_lost_packets_take_no_room_and_no_time():
    line = Line(Shape(rate_bps=8e6, loss=1.0, limit_packets=1))
    assert {line.arrive(packet, FULL, 0.0) for packet in range(5)} == {Fate.DROPPED}
    assert (line.lost, line.overflowed) == (5, 0)


def test_same_seed_loses_the_same_packets_and_another_seed_does_not():
    def lost(seed: int) -> list[Fate]:
        line = Line(Shape(loss=0.5, seed=seed))
        return [line.arrive(packet, FULL, 0.0) for packet in range(200)]

    assert lost(1) == lost(1)
    assert lost(1) != lost(2)


def test_reordered_packet_goes_on_at_once():
    line = Line(Shape(delay_s=0.020, reorder=1.0))
    assert line.arrive(1, FULL, 0.0) is Fate.PASSED
    assert line.next_due() is None


def test_shorter_delay_lets_nothing_overtake():
    line = Line(Shape(delay_s=0.100))
    line.arrive(1, FULL, 0.000)
    line.change(Shape(delay_s=0.010))
    line.arrive(2, FULL, 0.001)
    assert [packet for packet, _ in release_all(line)] == [2]  # both at the first one's time, as one release
    line.arrive(3, FULL, 0.200)
    (third,) = release_all(line)
    assert third[0] == 3
    assert math.isclose(third[1], 0.210)


def test_change_of_seed_starts_its_sequence():
    line = Line(Shape(loss=0.5, seed=1))
    line.change(Shape(loss=0.5, seed=2))
    fresh = Line(Shape(loss=0.5, seed=2))
    assert [line.arrive(n, FULL, 0.0) for n in range(50)] == [fresh.arrive(n, FULL, 0.0) for n in range(50)]


@given(
    st.lists(st.tuples(st.floats(0, 0.01), st.integers(20, FULL)), max_size=60),
    st.sampled_from([None, 1e6, 100e6]),
    st.integers(1, 20),
)
def test_packets_leave_in_order_each_after_delay_and_never_faster_than_the_rate(arrivals, rate, limit):
    line = Line(Shape(rate_bps=rate, delay_s=0.005, limit_packets=limit))
    now, queued = 0.0, []
    for packet, (pause, length) in enumerate(arrivals):
        now += pause
        if line.arrive(packet, length, now) is Fate.QUEUED:
            queued.append((packet, now, length))
    dues = dict(release_all(line))
    last = 0.0
    for packet, at, length in queued:
        if packet not in dues:  # released together with a later one
            continue
        assert dues[packet] >= at + 0.005
        if rate:
            assert dues[packet] >= last + (length + 14) * 8 / rate - 1e-9
        last = dues[packet]
    assert line.packets == len(arrivals)
    assert line.packets == len(queued) + line.overflowed
