"""qtunnel.recovery.congestion.hystart (RFC 9406)."""

from __future__ import annotations

from qtunnel.recovery.congestion.hystart import HyStart

ACKS_A_ROUND = 10


class Rounds:
    """Plays round trips of ten ACKs of 1200 bytes."""

    def __init__(self) -> None:
        self.hystart = HyStart()
        self.number = 0

    def play(self, rtt: float) -> tuple[int, bool]:
        """Return by how much the window would have grown in a round trip, and whether slow start is over."""
        growth, is_over = 0, False
        for _ in range(ACKS_A_ROUND):
            more, over = self.hystart.on_ack(1200, rtt, self.number, self.number + ACKS_A_ROUND)
            growth, is_over = growth + more, is_over or over
            self.number += 1
        return growth, is_over

    def look(self, rtt: float) -> bool:
        """Play a round trip after the end of slow start; return whether it should go on."""
        found = False
        for _ in range(ACKS_A_ROUND):
            found |= self.hystart.was_no_queue(rtt, self.number, self.number + ACKS_A_ROUND)
            self.number += 1
        return found


def test_a_steady_delay_keeps_slow_start_going() -> None:
    rounds = Rounds()
    assert [rounds.play(0.04) for _ in range(20)] == [(12000, False)] * 20


def test_a_delay_that_rises_by_an_eighth_slows_growth_to_a_quarter() -> None:
    rounds = Rounds()
    rounds.play(0.08)
    rounds.play(0.08)
    rounds.play(0.091)
    assert rounds.hystart.is_in_css
    assert rounds.play(0.091)[0] == 3000


def test_a_rise_below_the_threshold_is_none() -> None:
    rounds = Rounds()
    for _ in range(3):
        rounds.play(0.08)
    rounds.play(0.0899)
    assert not rounds.hystart.is_in_css


def test_the_threshold_is_between_4_and_16_milliseconds() -> None:
    for rtt, too_little, enough in ((0.001, 0.0049, 0.0051), (0.4, 0.4159, 0.4161)):
        for rise, expected in ((too_little, False), (enough, True)):
            rounds = Rounds()
            rounds.play(rtt)
            rounds.play(rtt)
            rounds.play(rise)
            assert rounds.hystart.is_in_css is expected


def test_five_rounds_of_it_end_slow_start() -> None:
    rounds = Rounds()
    rounds.play(0.04)
    rounds.play(0.04)
    over = [rounds.play(0.06)[1] for _ in range(6)]
    # It begins within the first, which counts; each one's end is the first ACK of the next.
    assert over.index(True) == 5


def test_a_delay_that_falls_again_was_no_queue() -> None:
    rounds = Rounds()
    rounds.play(0.04)
    rounds.play(0.04)
    rounds.play(0.06)
    rounds.play(0.06)
    assert rounds.hystart.is_in_css
    rounds.play(0.04)
    assert not rounds.hystart.is_in_css
    assert rounds.play(0.04) == (12000, False)


def test_fewer_than_eight_samples_judge_nothing() -> None:
    hystart = HyStart()
    for number in range(7):
        hystart.on_ack(1200, 0.04, 0, number)
    hystart.on_ack(1200, 0.04, 1, 100)
    for _ in range(6):
        hystart.on_ack(1200, 0.1, 50, 100)
    assert not hystart.is_in_css


def left_by_a_delay_that_rose(rise: float = 0.06) -> Rounds:
    rounds = Rounds()
    rounds.play(0.04)
    rounds.play(0.04)
    while not rounds.play(rise)[1]:
        pass
    return rounds


def test_a_delay_that_falls_after_the_end_was_no_queue_either() -> None:
    rounds = left_by_a_delay_that_rose()
    assert not any(rounds.look(0.06) for _ in range(10))
    assert not any(rounds.look(0.043) for _ in range(3))
    assert rounds.look(0.0424)


def test_a_few_samples_after_the_end_say_nothing() -> None:
    rounds = left_by_a_delay_that_rose()
    rounds.look(0.06)
    number = rounds.number + 50
    assert not rounds.hystart.was_no_queue(0.06, number, number)
    for _ in range(20):  # one ACK a round trip
        number += 50
        assert not rounds.hystart.was_no_queue(0.04, number, number)
