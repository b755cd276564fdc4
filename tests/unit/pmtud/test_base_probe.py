"""qtunnel.pmtud.base_probe. Times in seconds."""

from __future__ import annotations

from qtunnel.pmtud.base_probe import BaseProbe
from qtunnel.pmtud.config import MAX_PROBES, PROBE_TIMER


def test_unless_it_is_asked_nothing_is_sent() -> None:
    probe = BaseProbe()
    assert (probe.due_at, probe.take(5.0)) == (None, False)


def test_dpl_32_dpl_34_a_probe_goes_out_at_once_and_again_after_the_probe_timer() -> None:
    probe = BaseProbe()
    probe.ask(5.0)
    assert [probe.take(5.0), probe.take(5.0), probe.take(5.0 + PROBE_TIMER)] == [True, False, True]


def test_dpl_34_dpl_35_a_lost_one_is_followed_at_once_until_there_were_too_many() -> None:
    probe = BaseProbe()
    probe.ask(5.0)
    verdicts = []
    for number in range(MAX_PROBES + 1):
        probe.take(5.0 + number)
        verdicts.append((probe.on_lost(5.5 + number), probe.due_at))
    assert verdicts == [(False, 5.5), (False, 6.5), (True, 7.5 + PROBE_TIMER), (True, 8.5 + PROBE_TIMER)]


def test_one_of_which_nobody_says_what_became_of_it_is_followed_at_once() -> None:
    probe = BaseProbe()
    probe.ask(5.0)
    probe.take(5.0)
    probe.on_discarded(6.0)
    assert (probe.due_at, probe.losses) == (6.0, 0)


def test_stopped_it_asks_nothing_and_begins_anew() -> None:
    probe = BaseProbe()
    probe.ask(5.0)
    probe.on_lost(6.0)
    probe.stop()
    assert (probe.due_at, probe.losses) == (None, 0)
