"""qtunnel.recovery.lost_packets."""

from __future__ import annotations

from qtunnel.recovery.lost_packets import MAX_LOST_RUNS, LostPackets
from tests.unit.recovery.runs import run, taken


def test_a_lost_packet_that_arrives_is_found_once() -> None:
    lost = LostPackets()
    lost.remember(run(10, 4), 0b0110)
    assert taken(lost.take_arrived(0, 11)) == [11]
    assert lost.take_arrived(0, 11) == []
    assert taken(lost.take_arrived(12, 30)) == [12]
    assert len(lost) == 0


def test_two_losses_of_one_run_are_both_remembered() -> None:
    lost = LostPackets()
    lost.remember(run(10, 4), 0b0001)
    lost.remember(run(10, 4), 0b1000)
    assert taken(lost.take_arrived(10, 13)) == [10, 13]


def test_the_highest_number_lost_is_known() -> None:
    lost = LostPackets()
    assert lost.highest == -1
    lost.remember(run(10, 4), 0b0110)
    lost.remember(run(2, 1), 0b1)
    assert lost.highest == 12


def test_only_so_many_are_remembered_and_a_period_with_a_forgotten_one_cannot_be_undone() -> None:
    lost = LostPackets()
    assert lost.period.begin(0, 2 * MAX_LOST_RUNS + 2)
    for number in range(0, 2 * MAX_LOST_RUNS + 2, 2):
        lost.period.add_lost(number, 1)
        lost.remember(run(number), 1)
    assert len(lost) == MAX_LOST_RUNS
    arrived = lost.take_arrived(0, 2 * MAX_LOST_RUNS)
    assert taken(arrived) == list(range(2, 2 * MAX_LOST_RUNS + 2, 2))
    assert not any(lost.period.add_spurious(each.first, 1) for each, _ in arrived)
