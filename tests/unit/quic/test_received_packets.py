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
