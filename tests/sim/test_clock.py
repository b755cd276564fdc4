from tests.sim.clock import START, VirtualClock


def test_clock_stands_still_by_itself() -> None:
    clock = VirtualClock()
    assert clock.now == START
    assert not clock.step()
    assert clock.now == START


def test_things_happen_in_order_of_time_then_of_asking() -> None:
    clock = VirtualClock(0.0)
    seen: list[str] = []
    clock.call_at(2.0, lambda: seen.append("late"))
    clock.call_at(1.0, lambda: seen.append("first"))
    clock.call_at(1.0, lambda: seen.append("second"))
    clock.run_until(3.0)
    assert seen == ["first", "second", "late"]
    assert clock.now == 3.0


def test_a_cancelled_alarm_never_rings() -> None:
    clock = VirtualClock(0.0)
    seen: list[int] = []
    clock.call_at(1.0, lambda: seen.append(1)).cancel()
    clock.run_until(2.0)
    assert seen == []
    assert clock.next_time() is None


def test_what_is_due_in_the_past_happens_now_and_time_never_goes_back() -> None:
    clock = VirtualClock(5.0)
    clock.call_at(1.0, lambda: None)
    assert clock.step()
    assert clock.now == 5.0


def test_run_until_stops_before_what_is_later() -> None:
    clock = VirtualClock(0.0)
    seen: list[int] = []
    clock.call_at(2.0, lambda: seen.append(2))
    clock.run_until(1.0)
    assert (seen, clock.now) == ([], 1.0)
