"""What limits a driver, by precedence, and what a sample costs (A64)."""

from __future__ import annotations

import pytest

from qtunnel.aio.health import Health
from qtunnel.quic.sending_limit import SendingLimit
from qtunnel.tunnel.limit_history import SLOT_S

START = 1000.0


class World:
    """What a health looks at, and the health."""

    def __init__(self) -> None:
        self.limit = SendingLimit.NOTHING
        self.drops = 5
        self.cpu = 3.0
        self.now = START
        self.health = Health(
            sending_limit=lambda now: self.limit,
            receive_drops=lambda: self.drops,
            cpu_time=lambda: self.cpu,
            now=START,
        )

    def pass_time(self, seconds: float, *, cpu: float = 0.1, drops: int = 0, is_blocked: bool = False) -> None:
        for _ in range(round(seconds / SLOT_S)):
            self.now += SLOT_S
            self.cpu += cpu * SLOT_S
            self.drops += drops
            assert self.now >= self.health.due - 1e-9
            self.health.sample(self.now, is_blocked=is_blocked)
            assert self.health.due > self.now

    @property
    def answer(self) -> dict[str, object]:
        return self.health.as_dict(self.now)


@pytest.mark.parametrize("limit", list(SendingLimit)[2:])
def test_a64_what_the_core_says_limits(limit: SendingLimit) -> None:
    world = World()
    world.limit = limit
    world.pass_time(1)
    assert world.answer["limit"] == str(limit)


def test_a64_a_busy_cpu_comes_before_what_the_core_says() -> None:
    world = World()
    world.limit = SendingLimit.PATH
    world.pass_time(1, cpu=0.95, drops=1)
    assert world.answer["limit"] == "cpu"
    assert world.answer["cpu_share"] == pytest.approx(0.95)


def test_a64_datagrams_lost_to_a_full_receive_buffer_are_the_sockets_fault_when_the_cpu_is_at_ease() -> None:
    world = World()
    world.pass_time(1, drops=1)
    assert world.answer["limit"] == "socket-buffer"


def test_a64_a_full_send_buffer_comes_first() -> None:
    world = World()
    world.limit = SendingLimit.WINDOW
    world.pass_time(1, cpu=1.0, is_blocked=True)
    assert world.answer["limit"] == "socket-buffer"


def test_after_a_pause_the_cpu_is_measured_over_all_of_it() -> None:
    world = World()
    world.now += 60
    world.cpu += 0.09
    world.health.sample(world.now, is_blocked=False)
    assert world.answer["limits"] == {}


def test_nothing_moves_nothing_is_said() -> None:
    assert World().answer == {
        "limit": "nothing",
        "limits": {},
        "cpu_share": 0.0,
        "wake_ups": 0,
        "lateness_p99_ms": 0.0,
        "lateness_max_ms": 0.0,
    }


def test_lateness_is_shown_in_milliseconds() -> None:
    world = World()
    world.health.lateness.add(0.25, START)
    world.pass_time(1)
    assert (world.answer["wake_ups"], world.answer["lateness_max_ms"]) == (1, 250.0)
