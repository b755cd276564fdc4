from hypothesis import given
from hypothesis import strategies as st

from qtunnel.quic.received_packets import MAX_ACK_RANGES, WINDOW, ReceivedPackets


def fill(numbers: list[int]) -> ReceivedPackets:
    each = ReceivedPackets()
    for number in numbers:
        if each.is_new(number):
            each.add(number, 1.0)
    return each


@given(st.lists(st.integers(0, 60), max_size=80))
def test_ranges_and_duplicates_agree_with_a_set(numbers: list[int]) -> None:
    each = ReceivedPackets()
    seen: set[int] = set()
    for number in numbers:
        assert each.is_new(number) == (number not in seen)
        if number not in seen:
            each.add(number, 1.0)
            seen.add(number)
    covered = {number for first, last in each.take_ranges() for number in range(first, last + 1)}
    assert covered == seen


@given(st.integers(0, 5000), st.integers(1, 64), st.integers(0, 3))
def test_a_run_is_the_same_as_its_packets(start: int, count: int, gap: int) -> None:
    one, other = fill(list(range(start + 1))), fill(list(range(start + 1)))
    first = start + 1 + gap
    out_of_order = one.add_run(first, count, 2.0)
    single = [other.add(number, 2.0) for number in range(first, first + count)]
    assert out_of_order == single[0]
    assert one.take_ranges() == other.take_ranges()
    for number in range(max(0, start - 10), first + count + 5):
        assert one.is_new(number) == other.is_new(number)


def test_qtr_05_what_is_too_old_to_tell_counts_as_a_duplicate() -> None:
    each = fill([WINDOW + 100])
    assert not each.is_new(50)
    assert each.is_new(WINDOW + 99)
    assert not each.is_new(WINDOW + 100)


def test_no_more_ranges_than_a_peer_reads() -> None:
    each = fill(list(range(0, 1000, 2)))
    ranges = each.take_ranges()
    assert len(ranges) == MAX_ACK_RANGES
    assert ranges[0] == (998, 998)


def test_qtr_04_every_second_packet_that_asks_is_acknowledged_at_once() -> None:
    each = fill([0])
    each.received(eliciting=1, out_of_order=False, now=5.0)
    assert each.ack_at == 5.025
    each.add(1, 5.001)
    each.received(eliciting=1, out_of_order=False, now=5.001)
    assert each.ack_at == 5.001
    each.take_ranges()
    assert each.ack_at is None


def test_qtr_03_a_gap_is_acknowledged_at_once() -> None:
    each = fill([0])
    assert each.add(2, 5.0)
    each.received(eliciting=1, out_of_order=True, now=5.0)
    assert each.ack_at == 5.0
    assert each.add_run(5, 2, 6.0)
    assert not each.add_run(7, 2, 7.0)


def test_qtr_02_a_packet_that_asks_is_acknowledged_within_the_maximum_delay() -> None:
    each = fill([0])
    each.received(eliciting=1, out_of_order=False, now=5.0)
    assert each.ack_at == 5.025


def test_qtr_02_packets_that_do_not_ask_get_no_ack() -> None:
    each = fill([0, 1, 2])
    each.received(eliciting=0, out_of_order=True, now=5.0)
    assert each.ack_at is None


def test_what_the_peer_knows_of_is_not_acknowledged_again() -> None:
    each = fill([0, 1, 2, 5, 6])
    each.reported(40)
    each.add(9, 3.0)
    each.reported(42)
    each.acknowledged([(41, 41)])
    assert each.take_ranges() == [(9, 9), (5, 6), (0, 2)]
    each.acknowledged([(40, 40)])
    assert each.take_ranges() == [(9, 9), (6, 6)]
    each.acknowledged([(44, 50), (39, 43)])
    assert each.take_ranges() == [(9, 9)]
    each.acknowledged([(0, 50)])  # again: all is forgotten but what an ACK has to name
    assert each.take_ranges() == [(9, 9)]
    assert not each.is_new(1)


@given(st.lists(st.tuples(st.integers(0, 200), st.booleans()), max_size=60), st.integers(0, 400))
def test_only_what_was_reported_in_an_acknowledged_packet_is_forgotten(
    steps: list[tuple[int, bool]], acknowledged: int
) -> None:
    each, reports = fill([0]), {}
    for number, (packet, reports_it) in enumerate(steps):
        each.add(packet, 1.0)
        if reports_it:
            each.reported(2 * number)
            reports[2 * number] = each.largest
    before = {number for first, last in each.take_ranges() for number in range(first, last + 1)}
    each.acknowledged([(acknowledged, acknowledged)])
    known = reports.get(acknowledged, 0)
    after = {number for first, last in each.take_ranges() for number in range(first, last + 1)}
    assert after == {number for number in before if number >= known}
