"""Working memory is shared within a thread, never between two, and there is little of it."""

from __future__ import annotations

import threading

from qtunnel.quic.per_thread import MAX_SHAPES, per_thread


def test_a_thread_gets_the_same_again_and_another_thread_its_own() -> None:
    get = per_thread(lambda first, second: [first, second])
    ours = get(1, 2)
    assert ours == [1, 2]
    assert get(1, 2) is ours
    others: list[list[int]] = []
    thread = threading.Thread(target=lambda: others.append(get(1, 2)))
    thread.start()
    thread.join()
    assert others == [ours]
    assert others[0] is not ours


def test_what_was_not_used_for_long_is_given_back() -> None:
    made: list[int] = []
    get = per_thread(lambda first, _: made.append(first))
    for first in [*range(MAX_SHAPES), 0, MAX_SHAPES, 0]:
        get(first, 0)
    assert made == list(range(MAX_SHAPES + 1))
    get(1, 0)
    assert made[-1] == 1
