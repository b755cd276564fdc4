"""Which limit held when (A64), with a bound on what is kept."""

from __future__ import annotations

from qtunnel.quic.sending_limit import SendingLimit
from qtunnel.tunnel.limit_history import SLOT_S, SLOTS, LimitHistory

START = 1000.05


def fill(history: LimitHistory, limit: SendingLimit, first: int, count: int) -> float:
    now = START
    for slot in range(first, first + count):
        now = START + slot * SLOT_S
        history.note(limit, now)
    return now


def test_a64_what_held_for_most_of_the_last_second_limits_now() -> None:
    history = LimitHistory()
    fill(history, SendingLimit.WINDOW, 0, 4)
    now = fill(history, SendingLimit.PATH, 4, 6)
    assert history.current(now) is SendingLimit.PATH
    assert history.current(now + 2) is SendingLimit.NOTHING
    assert history.shares(now + 2) == {"path": 0.06, "window": 0.04}
    assert history.shares(now + 11) == {}


def test_a_short_burst_is_no_limit() -> None:
    history = LimitHistory()
    now = fill(history, SendingLimit.CPU, 0, 2)
    assert history.current(now) is SendingLimit.NOTHING
    assert history.current(START) is SendingLimit.NOTHING
    assert LimitHistory().current(START) is SendingLimit.NOTHING


def test_the_first_word_in_a_slot_counts_and_nothing_is_no_entry() -> None:
    history = LimitHistory()
    for slot in range(10):
        now = START + slot * SLOT_S
        history.note(SendingLimit.NOTHING, now)
        history.note(SendingLimit.PACING, now + 0.01)
        history.note(SendingLimit.PEER, now + 0.02)
    assert history.shares(now) == {"pacing": 0.1}


def test_what_is_kept_is_bounded() -> None:
    history = LimitHistory()
    now = fill(history, SendingLimit.WINDOW, 0, 10 * SLOTS)
    assert history.shares(now) == {"window": 1.0}
    assert len(history._seen) == SLOTS
