import pytest

from tests.sim.link import Conditions, Fate, SimLink, udp_payload


def test_a_perfect_link_delivers_everything_after_its_delay() -> None:
    link = SimLink(Conditions(delay=0.5), seed=1)
    assert [link.send(b"x", now) for now in (1.0, 2.0)] == [[1.5], [2.5]]
    assert link.counts == {Fate.DELIVERED: 2}


@pytest.mark.seeds(ci=3, long=100)
def test_loss_is_about_what_was_asked_for_and_the_same_for_the_same_seed(seed: int) -> None:
    first, again = (SimLink(Conditions(loss=0.1), seed=seed) for _ in range(2))
    fates = [bool(first.send(b"x", 0.0)) for _ in range(5000)]
    assert fates == [bool(again.send(b"x", 0.0)) for _ in range(5000)]
    assert 400 < first.counts[Fate.LOST] < 600


def test_different_seeds_lose_different_datagrams() -> None:
    one, two = (
        [bool(link.send(b"x", 0.0)) for _ in range(200)]
        for link in (SimLink(Conditions(loss=0.5), seed=seed) for seed in (1, 2))
    )
    assert one != two


def test_a_datagram_over_the_size_limit_vanishes_and_one_at_the_limit_passes() -> None:
    link = SimLink(Conditions(size_limit=1200), seed=1)
    assert link.send(bytes(1200), 0.0)
    assert not link.send(bytes(1201), 0.0)
    assert link.counts == {Fate.DELIVERED: 1, Fate.TOO_BIG: 1}
    assert link.largest_delivered == 1200


def test_rate_spaces_datagrams_and_a_full_queue_drops() -> None:
    link = SimLink(Conditions(delay=0.0, rate_bps=8000.0, max_queue_delay=2.0), seed=1)
    datagram = bytes(1000 - 28)  # one second each
    assert [link.send(datagram, 0.0) for _ in range(4)] == [[1.0], [2.0], [3.0], []]
    assert link.counts[Fate.QUEUE_FULL] == 1


def test_a_duplicate_arrives_twice_and_a_reordered_one_after_its_follower() -> None:
    twice = SimLink(Conditions(duplicate=1.0), seed=1)
    assert len(twice.send(b"x", 0.0)) == 2
    late = SimLink(Conditions(reorder=1.0, reorder_delay=0.02), seed=1)
    (first,) = late.send(b"x", 0.0)
    late.conditions.reorder = 0.0
    (second,) = late.send(b"y", 0.001)
    assert second < first


def test_a_link_that_is_down_delivers_nothing_until_it_is_up() -> None:
    link = SimLink(Conditions(up=False), seed=1)
    assert not link.send(b"x", 0.0)
    link.conditions.up = True
    assert link.send(b"x", 0.0)


def test_payload_sizes_are_mtu_less_the_headers() -> None:
    assert (udp_payload(1500), udp_payload(1500, 6)) == (1472, 1452)
