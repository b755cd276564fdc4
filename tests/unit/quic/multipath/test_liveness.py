import random

import pytest

from qtunnel.quic.multipath.liveness import GIVE_UP, RELAPSE, Liveness, Verdict, silence_limit

LIMIT = 0.1


def two_paths() -> Liveness:
    liveness = Liveness()
    liveness.add(0, 0.0, limit=LIMIT)
    liveness.add(1, 0.0, limit=LIMIT)
    return liveness


def silence(liveness: Liveness, path_id: int, start: float, end: float) -> list[tuple[float, int, Verdict]]:
    """Carry traffic on both paths every 10 ms; one of them does not answer. Return what was judged."""
    found = []
    now = start
    while now < end:
        for each in liveness.paths:
            liveness.on_asked(each, now)
            if each != path_id and (verdict := liveness.on_heard(each, now)):
                found.append((now, each, verdict))
        found += [(now, each, verdict) for each, verdict in liveness.handle_timer(now)]
        now = round(now + 0.01, 6)
    return found


def test_a_silent_path_is_put_aside_while_the_other_answers() -> None:
    liveness = two_paths()
    assert silence(liveness, 1, 0.0, 1.0) == [(0.1, 1, Verdict.SILENT)]
    assert liveness.is_aside(1)
    assert not liveness.is_aside(0)


def test_the_timer_says_when_to_judge() -> None:
    liveness = two_paths()
    liveness.on_asked(1, 1.0)
    assert liveness.get_timer() is None  # nothing can be said yet: the other was not heard either
    liveness.on_heard(0, 1.06)
    assert liveness.get_timer() == pytest.approx(1.1)


def test_when_no_path_answers_none_is_put_aside() -> None:
    liveness = two_paths()
    for path_id in (0, 1):
        liveness.on_asked(path_id, 1.0)
    assert liveness.handle_timer(60.0) == []


def test_two_paths_cut_off_a_moment_apart_by_one_cause_stay() -> None:
    liveness = two_paths()
    liveness.on_asked(0, 1.0)
    liveness.on_asked(1, 1.0)
    liveness.on_heard(0, 1.02)
    liveness.on_asked(0, 1.02)
    assert liveness.handle_timer(5.0) == []


def test_an_only_path_is_never_put_aside() -> None:
    liveness = Liveness()
    liveness.add(0, 0.0, limit=LIMIT)
    liveness.on_asked(0, 1.0)
    assert liveness.handle_timer(100.0) == []
    assert liveness.get_timer() is None


def test_a_path_that_was_not_asked_owes_nothing() -> None:
    liveness = two_paths()
    liveness.on_heard(0, 50.0)
    assert liveness.handle_timer(100.0) == []


def test_a_path_put_aside_is_asked_at_once_and_ever_less_often_and_taken_back() -> None:
    liveness = two_paths()
    silence(liveness, 1, 0.0, 0.105)
    times = []
    while len(times) < 7:
        at = liveness.get_timer()
        assert at is not None
        for path_id in liveness.probes_to_send(at):
            assert path_id == 1
            times.append(round(at - 0.1, 3))
    assert times == [0, 0.1, 0.3, 0.7, 1.5, 2.5, 3.5]
    assert liveness.on_heard(1, 4.0) is Verdict.ANSWERS
    assert not liveness.is_aside(1)
    assert liveness.on_heard(1, 4.1) is None


def test_a_path_that_flaps_has_to_answer_more_often_each_time() -> None:
    liveness = two_paths()
    now, wanted = 0.0, []
    for _ in range(6):
        silence(liveness, 1, now, now + 0.15)
        assert liveness.is_aside(1)
        answers = 0
        while liveness.is_aside(1):
            liveness.on_heard(1, now + 0.2)
            answers += 1
        wanted.append(answers)
        now += 1.0
    assert wanted == [1, 2, 4, 8, 8, 8]
    now += RELAPSE + 1
    silence(liveness, 1, now, now + 0.15)
    assert liveness.on_heard(1, now + 0.2) is Verdict.ANSWERS


def test_a_path_that_stays_silent_is_given_up_once_while_the_other_answers() -> None:
    liveness = two_paths()
    found = silence(liveness, 1, 0.0, GIVE_UP + 2)
    assert [(each, verdict) for _, each, verdict in found] == [(1, Verdict.SILENT), (1, Verdict.GIVEN_UP)]
    assert found[1][0] == pytest.approx(0.1 + GIVE_UP, abs=0.02)
    assert liveness.on_heard(1, 100.0) is None
    liveness.remove(1)
    assert liveness.get_timer() is None


@pytest.mark.seeds(ci=20, long=500)
def test_e18_stops_of_our_own_of_950_ms_put_no_path_aside(seed: int) -> None:
    """Once a second we do not run for 950 ms. What came meanwhile is read first, then silence is judged."""
    dice = random.Random(seed)
    liveness = two_paths()
    rtt = {0: 0.02, 1: 0.06}
    now = 0.0
    answers: list[tuple[float, int]] = []
    while now < 60.0:
        stop = 0.95 if now % 1.0 < 0.005 else 0.0
        now += stop or 0.005
        if stop:
            liveness.excuse(stop, now)
        for at, path_id in sorted(answer for answer in answers if answer[0] <= now):
            assert at <= now
            assert liveness.on_heard(path_id, now) is None
        answers = [answer for answer in answers if answer[0] > now]
        assert liveness.handle_timer(now) == [], f"seed {seed}"
        for path_id, seconds in rtt.items():
            if dice.random() < 0.9:
                liveness.on_asked(path_id, now)
                answers.append((now + seconds + dice.random() * 0.01, path_id))


def test_e18_a_packet_lost_before_a_stop_of_our_own_condemns_no_path() -> None:
    liveness = two_paths()
    liveness.on_asked(1, 10.0)
    liveness.excuse(0.95, 10.95)
    liveness.on_heard(0, 10.95)
    assert liveness.handle_timer(10.95) == []
    liveness.on_heard(0, 11.04)
    assert liveness.handle_timer(11.06) == [(1, Verdict.SILENT)]


@pytest.mark.parametrize(
    ("smoothed_rtt", "pto", "limit"),
    [(0.001, 0.03, 0.05), (0.05, 0.09, 0.15), (0.1, 0.5, 0.5), (0.2, 2.0, 0.8), (0.6, 2.0, 1.2)],
)
def test_the_silence_allowed_follows_the_round_trip(smoothed_rtt: float, pto: float, limit: float) -> None:
    assert silence_limit(smoothed_rtt, pto) == pytest.approx(limit)


def test_the_limit_follows_the_path() -> None:
    liveness = two_paths()
    liveness.set_limit(1, 0.5)
    liveness.set_limit(7, 0.5)
    assert silence(liveness, 1, 0.0, 1.0) == [(0.5, 1, Verdict.SILENT)]
