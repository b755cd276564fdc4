"""qtunnel.recovery.congestion.loss_based: what CUBIC and NewReno share."""

from __future__ import annotations

from math import inf

import pytest

from qtunnel.recovery.congestion.cubic import Cubic
from qtunnel.recovery.congestion.loss_based import LossBased
from qtunnel.recovery.congestion.newreno import NewReno
from tests.unit.recovery.congestion.samples import RTT, ack, loss

BOTH = pytest.mark.parametrize("kind", [Cubic, NewReno])


@BOTH
def test_slow_start_grows_by_what_was_acknowledged(kind: type[LossBased]) -> None:
    control = kind(1200)
    control.on_ack(ack(1.0, 6000))
    assert control.congestion_window == 18000
    assert control.ssthresh == inf


@BOTH
def test_a_window_that_was_not_full_does_not_grow(kind: type[LossBased]) -> None:
    control = kind(1200)
    control.on_ack(ack(1.0, 6000, limited=False))
    assert control.congestion_window == 12000


@BOTH
def test_what_was_sent_before_recovery_does_not_make_it_grow(kind: type[LossBased]) -> None:
    control = kind(1200)
    control.on_loss(loss(1.0))
    window = control.congestion_window
    control.on_ack(ack(1.1, 6000, growing=0))
    assert control.congestion_window == window


@BOTH
def test_one_period_one_reduction(kind: type[LossBased]) -> None:
    control = kind(1200)
    control.on_loss(loss(1.0))
    window = control.congestion_window
    assert window == int(12000 * kind.BETA)
    control.on_loss(loss(1.0, starts_recovery=False))
    assert control.congestion_window == window
    control.on_loss(loss(1.1))
    assert control.congestion_window < window


@BOTH
def test_losses_that_were_none_are_taken_back(kind: type[LossBased]) -> None:
    control = kind(1200)
    control.on_ack(ack(1.0, 12000))
    control.on_loss(loss(1.1))
    control.on_spurious_loss(1.2)
    assert (control.congestion_window, control.ssthresh) == (24000, inf)
    # Slow start goes on.
    control.on_ack(ack(1.3, 12000))
    assert control.congestion_window == 36000


@BOTH
def test_nothing_is_taken_back_twice(kind: type[LossBased]) -> None:
    control = kind(1200)
    control.on_loss(loss(1.1))
    control.on_spurious_loss(1.2)
    control.on_loss(loss(1.3))
    control.on_ecn_ce(1.4, starts_recovery=True)
    window = control.congestion_window
    control.on_spurious_loss(1.5)
    assert control.congestion_window == window


@BOTH
def test_a_window_that_has_outgrown_the_old_one_is_kept(kind: type[LossBased]) -> None:
    control = kind(1200)
    control.on_loss(loss(1.0))
    for step in range(400):
        control.on_ack(ack(1.0 + step * RTT, control.congestion_window))
    window = control.congestion_window
    assert window > 12000
    control.on_spurious_loss(99.0)
    assert control.congestion_window == window


@BOTH
def test_a_congestion_mark_reduces_as_a_loss_does(kind: type[LossBased]) -> None:
    control = kind(1200)
    control.on_ecn_ce(1.0, starts_recovery=True)
    assert control.congestion_window == int(12000 * kind.BETA)
    control.on_ecn_ce(1.0, starts_recovery=False)
    assert control.congestion_window == int(12000 * kind.BETA)


@BOTH
def test_persistent_congestion_goes_to_the_minimum_and_slow_start_leads_back(kind: type[LossBased]) -> None:
    control = kind(1200)
    control.on_ack(ack(1.0, 100_000))
    control.on_loss(loss(1.1))
    ssthresh = control.ssthresh
    control.on_persistent_congestion(1.1)
    assert control.congestion_window == 2400
    control.on_ack(ack(1.2, 2400))
    assert control.congestion_window == 4800
    for step in range(10):
        control.on_ack(ack(1.3 + step * RTT, control.congestion_window))
        if control.congestion_window >= ssthresh:
            break
    # It stops right at ssthresh.
    assert control.congestion_window == int(ssthresh)


@BOTH
def test_a_smaller_datagram_size_scales_the_window_and_a_larger_one_leaves_it(kind: type[LossBased]) -> None:
    control = kind(1472)
    control.on_ack(ack(1.0, 14720))
    control.set_max_datagram_size(1104)
    assert control.congestion_window == 22080
    control.set_max_datagram_size(1472)
    assert control.congestion_window == 22080


@BOTH
def test_a_larger_datagram_size_raises_the_window_only_to_the_minimum(kind: type[LossBased]) -> None:
    control = kind(1200)
    control.on_persistent_congestion(1.0)
    control.set_max_datagram_size(9000)
    assert control.congestion_window == 18000


@BOTH
def test_pacing_begins_with_the_first_rtt(kind: type[LossBased]) -> None:
    control = kind(1200)
    assert control.pacing_rate is None
    control.on_idle_restart(0.9)
    control.on_ack(ack(1.0, 1200))
    assert control.pacing_rate == pytest.approx(2 * 13200 / RTT)
    control.on_loss(loss(1.1))
    control.on_ack(ack(1.2, 1200, growing=0))
    assert control.pacing_rate == pytest.approx(1.25 * 13200 * kind.BETA / RTT)


def test_a_delay_that_rises_ends_slow_start_without_a_loss() -> None:
    control = Cubic(1200)
    now, number = 1.0, 0
    for rtt in [0.04, 0.04] + [0.06] * 8:
        for _ in range(10):
            control.on_ack(ack(now, 1200, rtt=rtt, largest_acked=number, largest_sent=number + 10))
            number += 1
        now += rtt
    assert control.ssthresh < inf
    window = control.congestion_window
    control.on_ack(ack(now, 12000, rtt=0.06, largest_acked=number, largest_sent=number + 20))
    assert control.congestion_window < window + 12000


def test_the_shared_part_alone_knows_no_congestion_avoidance() -> None:
    class Half(LossBased):
        BETA = 0.5
        name = "half"

    control = Half(1200)
    control.on_loss(loss(1.0))
    with pytest.raises(NotImplementedError):
        control.on_ack(ack(1.1, 1200))


class Delays:
    """Feeds a controller round trips of twenty ACKs each."""

    def __init__(self, control: LossBased) -> None:
        self.control = control
        self.number = 0
        self.now = 1.0

    def play(self, rtt: float, rounds: int) -> None:
        for _ in range(rounds):
            for _ in range(20):
                self.now += rtt / 20
                self.number += 1
                self.control.on_ack(
                    ack(self.now, 1200, rtt=rtt, largest_acked=self.number, largest_sent=self.number + 20)
                )


@BOTH
def test_slow_start_that_ended_by_a_delay_goes_on_when_the_delay_was_not_ours(kind: type[LossBased]) -> None:
    """What a download leaves to an upload that follows it, and the other way round."""
    control = kind(1200)
    delays = Delays(control)
    delays.play(0.04, 3)
    delays.play(0.06, 8)
    window = control.congestion_window
    assert control.ssthresh <= window
    delays.play(0.04, 4)
    assert control.ssthresh == inf
    assert control.congestion_window >= window + 2 * 20 * 1200


@BOTH
@pytest.mark.parametrize("rtt", [0.06, 0.05])
def test_slow_start_that_ended_by_a_delay_is_over_while_the_delay_stays(kind: type[LossBased], rtt: float) -> None:
    control = kind(1200)
    delays = Delays(control)
    delays.play(0.04, 3)
    delays.play(0.06, 8)
    ssthresh = control.ssthresh
    delays.play(rtt, 20)
    assert control.ssthresh == ssthresh


@BOTH
def test_after_a_loss_slow_start_does_not_go_on(kind: type[LossBased]) -> None:
    control = kind(1200)
    delays = Delays(control)
    delays.play(0.04, 3)
    delays.play(0.06, 8)
    control.on_loss(loss(delays.now))
    delays.play(0.04, 4)
    assert control.ssthresh < inf
