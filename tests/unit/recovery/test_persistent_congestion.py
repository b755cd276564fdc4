"""qtunnel.recovery.persistent_congestion. RFC 9002's own example is in tests/conformance/test_rfc9002.py."""

from __future__ import annotations

from qtunnel.recovery.persistent_congestion import is_persistent_congestion
from qtunnel.recovery.sent_packets import DATA, IN_FLIGHT, MTU_PROBE, SentRun
from tests.unit.recovery.runs import run

PROBE = DATA | MTU_PROBE


def lost(*runs: SentRun) -> list[tuple[SentRun, int]]:
    return [(each, each.outstanding) for each in runs]


def test_two_losses_far_apart_are_persistent_congestion() -> None:
    runs = lost(run(0, 2, time_sent=1.0), run(2, 2, time_sent=4.1))
    assert is_persistent_congestion(runs, 3.0, 0.5)
    assert not is_persistent_congestion(runs, 3.1, 0.5)


def test_without_an_rtt_sample_before_there_is_none() -> None:
    runs = lost(run(0, 2, time_sent=1.0), run(2, 2, time_sent=4.1))
    assert not is_persistent_congestion(runs, 3.0, None)
    assert not is_persistent_congestion(runs, 3.0, 1.0)


def test_a_packet_that_got_through_between_ends_the_span() -> None:
    second = run(3, 2, time_sent=4.1)
    second.follows_gap = True
    assert not is_persistent_congestion(lost(run(0, 2, time_sent=1.0), second), 3.0, 0.5)


def test_a_hole_within_a_run_ends_the_span() -> None:
    first, last = run(0, 3, time_sent=1.0), run(3, 1, time_sent=4.1)
    first.outstanding = 0b011
    assert not is_persistent_congestion(lost(first, last), 3.0, 0.5)
    first.outstanding = 0b110
    assert is_persistent_congestion(lost(first, last), 3.0, 0.5)
    last = run(3, 2, time_sent=4.1)
    last.outstanding = 0b10
    assert not is_persistent_congestion(lost(first, last), 3.0, 0.5)


def test_above_a_hole_a_span_begins_anew() -> None:
    holed = run(1, 3, time_sent=2.0)
    holed.outstanding = 0b101
    assert not is_persistent_congestion(lost(run(0, 1, time_sent=1.0), holed, run(4, 1, time_sent=4.9)), 3.0, 0.5)
    assert is_persistent_congestion(lost(run(0, 1, time_sent=1.0), holed, run(4, 1, time_sent=5.1)), 3.0, 0.5)


def test_probes_and_what_elicits_no_ack_are_no_ends_of_a_span() -> None:
    plain = run(1, 1, time_sent=2.0)
    for flags in (PROBE, IN_FLIGHT):
        ends = (run(0, 1, time_sent=1.0, flags=flags), plain, run(2, 1, time_sent=4.1, flags=flags))
        assert not is_persistent_congestion(lost(*ends), 3.0, 0.5)


def test_a_lost_probe_within_a_span_is_no_gap() -> None:
    runs = lost(run(0, 1, time_sent=1.0), run(1, 1, time_sent=2.0, flags=PROBE), run(2, 1, time_sent=4.1))
    assert is_persistent_congestion(runs, 3.0, 0.5)
