"""qtunnel.pmtud.discovery: what holds whatever the network and the caller do. Sizes in bytes of UDP payload."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from qtunnel.pmtud.config import PathMtuConfig
from qtunnel.pmtud.discovery import PathMtuDiscovery
from qtunnel.pmtud.events import SizeChanged, StateChanged
from qtunnel.pmtud.probes import ProbePacket
from qtunnel.pmtud.sizes import udp_payload
from qtunnel.pmtud.states import TRANSITIONS, State
from tests.unit.pmtud.driver import Driver

STEPS = 120


class AnyCaller:
    """Makes calls in any order, with any answers, and checks after each what always holds."""

    def __init__(self, config: PathMtuConfig, rnd: random.Random) -> None:
        self.config = config
        self.random = rnd
        self.now = 100.0
        self.discovery = PathMtuDiscovery(config)
        self.numbers: list[int] = []
        self.size = self.discovery.size
        self.state = State.DISABLED

    def step(self) -> None:
        rnd, discovery = self.random, self.discovery
        self.now += rnd.choice((0.0, 0.01, 0.1, 1.0, 20.0))
        size = rnd.choice((0, 1200, 1300, discovery.size, rnd.randint(-10, 10_000)))
        some = [number for number in self.numbers if rnd.random() < 0.5]
        sent = self.now - rnd.choice((0.0, 0.05, 1.0))
        rnd.choice(
            (
                lambda: discovery.on_confirmed(self.now, carried=rnd.choice((None, 600, 1200))),
                lambda: discovery.on_path_lost(self.now) if rnd.random() < 0.2 else None,
                lambda: discovery.on_rtt(*(rnd.choice((0.0, 0.01, 0.1)) for _ in range(4))),
                lambda: discovery.on_probes_acked(some, self.now),
                lambda: discovery.on_probes_lost(some, self.now),
                lambda: discovery.on_probes_lost(self.numbers, self.now),
                lambda: discovery.on_probes_discarded(some, self.now),
                lambda: discovery.on_packets_acked(size, 1, sent, self.now),
                lambda: discovery.on_packets_lost(size, rnd.randint(1, 5), sent, self.now),
                lambda: discovery.on_pto(size, self.now),
                lambda: discovery.on_stall(self.now),
                lambda: discovery.on_ptb(size, self.now),
                lambda: discovery.on_refused(size, self.now),
            )
        )()
        self.check()
        discovery.handle_timer(self.now)
        for packet in discovery.packets_to_send(self.now, rnd.choice((0, 3000, 100_000))):
            self.check_packet(packet)
            if packet.is_probe:
                self.numbers.append(len(self.numbers))
                discovery.on_probe_sent(self.numbers[-1], packet, self.now)
        timer = discovery.get_timer()
        # A timer that is due now, with nothing done about it, would be a busy loop.
        assert timer is None or timer > self.now, (timer, self.now)
        assert timer is not None or not discovery.is_holding
        self.check()

    def find(self, limit: int) -> None:
        """Let the network work from now on: then the search comes to an end."""
        discovery = self.discovery
        discovery.on_confirmed(self.now)
        discovery.on_probes_lost(self.numbers, self.now)
        for _ in range(300):
            timer = discovery.get_timer()
            if discovery.state is State.SEARCH_COMPLETE and not discovery.is_suspicious:
                break
            self.now = max(timer, self.now) if timer is not None else self.now
            discovery.handle_timer(self.now)
            answers = []
            for packet in discovery.packets_to_send(self.now, 100_000):
                if packet.is_probe:
                    self.numbers.append(len(self.numbers))
                    discovery.on_probe_sent(self.numbers[-1], packet, self.now)
                    answers.append((self.numbers[-1], packet.size <= limit))
            self.now += 0.1
            for number, arrived in answers:
                (discovery.on_probes_acked if arrived else discovery.on_probes_lost)([number], self.now)
            self.check()
        assert (discovery.state, discovery.is_suspicious) == (State.SEARCH_COMPLETE, False)

    def check_packet(self, packet: ProbePacket) -> None:
        assert 0 < packet.size <= self.config.most
        assert packet.is_probe or packet.size <= self.discovery.size

    def check(self) -> None:
        discovery, config = self.discovery, self.config
        while (event := discovery.next_event()) is not None:
            if isinstance(event, SizeChanged):
                assert event.old == self.size
                self.size = event.new
            elif isinstance(event, StateChanged):
                assert event.old is self.state
                assert event.new in TRANSITIONS.values()
                self.state = event.new
        assert (discovery.size, discovery.state) == (self.size, self.state)
        assert config.base <= discovery.size <= config.most


@given(
    seed=st.integers(0, 1 << 30),
    version=st.sampled_from((4, 6)),
    interface=st.sampled_from((500, 1200, 1210, 1472, 8972)),
    floor=st.sampled_from((None, 1300)),
    search=st.sampled_from(("parallel", "sequential")),
    black_hole=st.sampled_from(("confirm", "confirm", "off", "loss_count")),
    remembered=st.sampled_from((None, 1400)),
)
def test_dpl_01_whatever_happens_ordinary_packets_stay_within_the_size_and_nothing_raises(
    seed: int,
    version: int,
    interface: int,
    floor: int | None,
    search: str,
    black_hole: str,
    remembered: int | None,
) -> None:
    config = PathMtuConfig(
        version=version,
        interface=interface,
        floor=floor,
        search=search,  # type: ignore[arg-type]  # hypothesis gives plain strings
        black_hole=black_hole,  # type: ignore[arg-type]
        remembered=remembered,
    )
    caller = AnyCaller(config, random.Random(seed))
    for _ in range(STEPS):
        caller.step()
    caller.find(limit=max(config.base, 1333))


@settings(max_examples=60)
@given(
    mtu=st.integers(1228, 1500),
    loss=st.sampled_from((0.0, 0.02, 0.1)),
    seed=st.integers(0, 1 << 30),
    search=st.sampled_from(("parallel", "sequential")),
)
def test_dpl_11_dpl_42_with_random_losses_the_size_never_exceeds_the_path_and_the_raise_timer_mends_it(
    mtu: int, loss: float, seed: int, search: str
) -> None:
    rnd = random.Random(seed)
    limit = udp_payload(mtu, 4)
    driver = Driver(PathMtuConfig(search=search), limit=limit, loses=lambda _: rnd.random() < loss)  # type: ignore[arg-type]  # as above
    driver.confirm()
    driver.run(400)
    assert driver.discovery.size <= limit
    driver.loses = lambda _: False
    timer = driver.discovery.get_timer()
    if timer is not None:
        driver.now = timer
        driver.round_trip()
        driver.run()
    assert driver.discovery.size == limit


@given(seed=st.integers(0, 1 << 30), limit=st.integers(1200, 1471))
def test_dpl_11_dpl_50_answers_in_any_order_find_every_narrower_path(seed: int, limit: int) -> None:
    rnd = random.Random(seed)
    driver = Driver().found()
    driver.limit = limit
    driver.lose_packets()
    for _ in range(60):
        if driver.discovery.size <= limit and driver.discovery.state is State.SEARCH_COMPLETE:
            break
        driver.discovery.handle_timer(driver.now)
        probes = driver.send()
        driver.now += 0.1
        rnd.shuffle(probes)
        driver.answer(probes)
        driver.answer(probes)  # all of it twice
    assert driver.discovery.size == limit
