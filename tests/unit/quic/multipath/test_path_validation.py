import itertools

from qtunnel.quic.multipath.path_validation import (
    CHALLENGE_SIZE,
    INITIAL_PTO,
    MAX_OUTSTANDING,
    PathValidation,
    ValidationResult,
)


def validation(*, pto: float = 0.1, needs_size: bool = True) -> PathValidation:
    count = itertools.count(1)
    return PathValidation(
        100.0, pto=pto, random_bytes=lambda size: next(count).to_bytes(size), needs_size=needs_size
    )


def number(value: int) -> bytes:
    return value.to_bytes(CHALLENGE_SIZE)


def test_mpq_14_mpq_17_an_answer_to_a_challenge_of_1200_bytes_validates_address_and_size() -> None:
    under_test = validation()
    assert under_test.challenge_to_send(100.0, None) == (number(1), 1200)
    assert under_test.on_response(number(1), 100.05)
    assert under_test.result is ValidationResult.VALIDATED
    assert under_test.get_timer() is None
    assert under_test.challenge_to_send(200.0, None) is None


def test_mpq_17_where_amplification_forbids_1200_bytes_the_size_is_proved_later() -> None:
    under_test = validation()
    assert under_test.challenge_to_send(100.0, 1199) == (number(1), 0)
    assert under_test.on_response(number(1), 100.05)
    assert under_test.result is ValidationResult.ADDRESS_VALIDATED
    assert under_test.get_timer() == 100.05
    assert under_test.challenge_to_send(100.05, None) == (number(2), 1200)
    assert under_test.on_response(number(2), 100.1)
    assert under_test.result is ValidationResult.VALIDATED


def test_mpq_17_an_address_that_answers_but_carries_no_1200_bytes_fails() -> None:
    under_test = validation()
    assert under_test.challenge_to_send(100.0, 500) is not None
    under_test.on_response(number(1), 100.05)
    under_test.challenge_to_send(100.05, None)
    under_test.handle_timer(100.05 + 3 * INITIAL_PTO)
    assert under_test.result is ValidationResult.FAILED


def test_a_lost_challenge_is_followed_by_another_ever_later_and_any_answer_counts() -> None:
    under_test = validation()
    times = []
    while (at := under_test.get_timer()) is not None and at < 101.0:
        assert under_test.challenge_to_send(at, None) == (number(len(times) + 1), 1200)
        times.append(round(at - 100, 3))
    assert times == [0, 0.1, 0.3, 0.7]
    assert under_test.on_response(number(2), 101.0)
    assert under_test.result is ValidationResult.VALIDATED


def test_mpq_18_without_an_answer_it_fails_after_three_pto_and_a_later_answer_changes_nothing() -> None:
    under_test = validation(pto=0.5)
    under_test.challenge_to_send(100.0, None)
    under_test.handle_timer(100.0 + 3 * INITIAL_PTO - 0.001)
    assert under_test.result is ValidationResult.PENDING
    under_test.handle_timer(100.0 + 3 * INITIAL_PTO)
    assert under_test.result is ValidationResult.FAILED
    assert not under_test.on_response(number(1), 104.0)
    assert under_test.result is ValidationResult.FAILED


def test_a_slow_path_gets_three_of_its_own_pto() -> None:
    under_test = validation(pto=3.0)
    under_test.handle_timer(108.9)
    assert under_test.result is ValidationResult.PENDING
    under_test.handle_timer(109.0)
    assert under_test.result is ValidationResult.FAILED


def test_an_answer_to_no_challenge_of_ours_is_none_and_none_counts_twice() -> None:
    under_test = validation()
    under_test.challenge_to_send(100.0, 0)
    assert not under_test.on_response(number(9), 100.1)
    assert under_test.on_response(number(1), 100.1)
    assert not under_test.on_response(number(1), 100.1)
    assert under_test.result is ValidationResult.ADDRESS_VALIDATED


def test_an_old_address_is_asked_without_padding() -> None:
    under_test = validation(needs_size=False)
    assert under_test.challenge_to_send(100.0, None) == (number(1), 0)
    assert under_test.on_response(number(1), 100.1)
    assert under_test.result is ValidationResult.VALIDATED


def test_challenges_without_an_answer_have_a_bound() -> None:
    under_test = validation()
    now = 100.0
    for _ in range(MAX_OUTSTANDING + 3):
        now = max(now, under_test._next_at)
        assert under_test.challenge_to_send(now, None) is not None
    assert len(under_test._outstanding) == MAX_OUTSTANDING


def test_a_stall_of_our_own_is_no_failure() -> None:
    under_test = validation()
    under_test.challenge_to_send(100.0, None)
    under_test.excuse(5.0)
    under_test.handle_timer(107.0)
    assert under_test.result is ValidationResult.PENDING


def test_what_cannot_be_sent_is_not_waited_for() -> None:
    assert validation().get_timer(can_send=False) == 100.0 + 3 * INITIAL_PTO
    assert validation().get_timer() == 100.0
