from hypothesis import given
from hypothesis import strategies as st

from qtunnel.tunnel.events import CloseReason
from qtunnel.tunnel.reconnect import STABLE_AFTER, Backoff, is_final


def backoff(uniform: float = 1.0) -> Backoff:
    return Backoff(shortest=0.5, longest=30.0, uniform=lambda: uniform)


def test_delays_double_up_to_the_longest() -> None:
    each = backoff()
    delays = [each.next_delay(up_for=0.0) for _ in range(9)]
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_the_first_attempt_after_a_stable_tunnel_is_immediate() -> None:
    each = backoff()
    each.next_delay(up_for=0.0)
    assert each.next_delay(up_for=STABLE_AFTER) == 0.0
    assert each.failures == 0


def test_a_tunnel_that_comes_up_and_dies_at_once_is_a_failure() -> None:
    each = backoff()
    assert [each.next_delay(up_for=1.0) for _ in range(3)] == [0.5, 1.0, 2.0]


@given(st.floats(0.0, 0.999), st.integers(1, 50))
def test_jitter_takes_at_most_half(uniform: float, failures: int) -> None:
    each, full = backoff(uniform), backoff(1.0)
    for _ in range(failures):
        delay, most = each.next_delay(up_for=0.0), full.next_delay(up_for=0.0)
    assert most / 2 <= delay <= most


def test_a_refused_token_is_final_and_an_outage_is_not() -> None:
    assert is_final(CloseReason.AUTHENTICATION)
    assert is_final(CloseReason.NOT_VERIFIED)
    assert is_final(CloseReason.REPLACED)
    assert not is_final(CloseReason.IDLE)
    assert not is_final(CloseReason.NO_ANSWER)
    assert not is_final(CloseReason.SHUTDOWN)
    assert not is_final(CloseReason.USER_REMOVED)
