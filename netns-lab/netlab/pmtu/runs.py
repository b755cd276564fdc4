"""Many simulated connections, on all cores: paths that stay as they are, paths that become narrower, searches."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from netlab.pmtu.conditions import MBIT, Conditions, draw
from netlab.pmtu.connection import Connection
from qtunnel.pmtud.config import PathMtuConfig
from qtunnel.pmtud.sizes import udp_payload

__all__ = ["Quiet", "Search", "Shrink", "in_parallel", "quiet", "search", "shrink"]

CHUNK = 10
INTERFACE = udp_payload(1500, 4)
T = TypeVar("T")


@dataclass(slots=True, frozen=True, kw_only=True)
class Quiet:
    """A connection whose path stayed as it was. seconds: of virtual time; suspicions all ended in an acquittal."""

    seed: int
    seconds: float
    packets: int
    suspicions: int
    false_alarms: int


@dataclass(slots=True, frozen=True, kw_only=True)
class Shrink:
    """A connection whose path became narrower.

    is_tested: a full-size packet was lost to it. found_after: seconds from then to the conviction; None: never.
    within: that, as a share of the time allowed. false_alarms: convictions before. is_too_large: the size that
    was gone on with does not get through.
    """

    seed: int
    seconds: float
    packets: int
    is_tested: bool
    found_after: float | None
    within: float | None
    false_alarms: int
    is_too_large: bool


@dataclass(slots=True, frozen=True, kw_only=True)
class Search:
    """A search from its first flight to its end. round_trips, usable: of RTT and max_ack_delay.

    usable: until the size was larger than the base. off_by: bytes between what was found and what gets through;
    None: it has not ended.
    """

    seed: int
    round_trips: float
    usable: float
    flights: int
    probe_bytes: int
    off_by: int | None


def quiet(seed: int) -> Quiet:
    """Run a connection on a path that stays as it is."""
    conditions = draw(seed, shrinks=False)
    outcome = Connection(conditions).run()
    return Quiet(
        seed=seed,
        seconds=conditions.duration,
        packets=outcome.sent,
        suspicions=outcome.suspicions,
        false_alarms=len(outcome.convictions),
    )


def shrink(seed: int) -> Shrink:
    """Run a connection on a path that becomes narrower, until that is found."""
    conditions = draw(seed, shrinks=True)
    assert conditions.shrinks is not None
    connection = Connection(conditions)
    outcome = connection.run(until_convicted=True)
    lost = outcome.first_lost
    found = outcome.convictions[0] if outcome.convictions else None
    after = found[0] - lost if found is not None and lost is not None and found[0] >= lost else None
    return Shrink(
        seed=seed,
        seconds=connection.seconds,
        packets=outcome.sent,
        is_tested=lost is not None,
        found_after=after,
        within=after / outcome.bound if after is not None else None,
        false_alarms=int(found is not None and found[0] < conditions.shrinks[0]),
        is_too_large=after is not None and found is not None and found[2] > conditions.shrinks[1],
    )


def search(seed: int, loss: float, link_mtu: int | None = None, *, largest: int = 1500) -> Search:
    """Run a connection until its search ends. link_mtu: of the path; None: drawn from the seed."""
    rnd = random.Random(seed)
    limit = udp_payload(link_mtu, 4) if link_mtu is not None else rnd.randint(1200, udp_payload(largest, 4))
    conditions = Conditions(
        seed=seed,
        loss=loss,
        app=rnd.choice(("bulk", "mixed", "sparse")),
        rate=100 * MBIT,
        queue_packets=1000,
        link=limit,
        duration=30.0,
    )
    connection = Connection(conditions, PathMtuConfig(interface=udp_payload(largest, 4)))
    outcome = connection.run(until_searched=True)
    round_trip = conditions.rtt + conditions.max_ack_delay
    end = outcome.searched
    return Search(
        seed=seed,
        round_trips=connection.seconds / round_trip,
        usable=(outcome.usable or 0.0) / round_trip,
        flights=end.flights if end is not None else 0,
        probe_bytes=outcome.probe_bytes,
        off_by=limit - end.size if end is not None else None,
    )


def in_parallel(task: Callable[[Any], T], inputs: Iterable[Any]) -> Iterator[T]:
    """Return what a task, a function of a module, makes of each input, in any order."""
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        yield from pool.imap_unordered(task, inputs, CHUNK)
