"""What a simulated path and its two ends are like, drawn from a seed: anything that has misled others."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

__all__ = ["Conditions", "draw"]

MBIT = 125_000
RTTS = (0.01, 0.02, 0.04, 0.08, 0.15, 0.3)
RATES = (3, 4, 6, 9)


@dataclass(slots=True, kw_only=True)
class Conditions:
    """One path. Times in seconds, rates in bytes a second, sizes in bytes of UDP payload.

    queue_bytes, queue_packets: room of the bottleneck's drop-tail queue; the one that is None does not limit.
    competitors: flows beside ours at the bottleneck that take what they can get. blast: another one, blind, whose
    rate is this part of the bottleneck's while it is on. burst_loss: after a random loss the next packet is lost
    with this probability. app: "bulk" always has full packets to send, "mixed" half of them small, "sparse" a
    full one and some small ones now and then, "bursts" sends a lot and then nothing. receiver_stops, sender_stops:
    when, how long.
    """

    seed: int
    congestion: Literal["cubic", "bbr"] = "cubic"
    rtt: float = 0.04
    rate: float = 8 * MBIT
    queue_bytes: int | None = None
    queue_packets: int | None = 100
    loss: float = 0.0
    burst_loss: float = 0.0
    ack_loss: float = 0.0
    reorder: float = 0.0
    reorder_delay: float = 0.0
    competitors: int = 0
    blast: float = 0.0
    ack_every: int = 2
    ack_at_gaps: bool = True
    max_ack_delay: float = 0.025
    receive_buffer: int = 200_000
    app: Literal["bulk", "mixed", "sparse", "bursts"] = "bulk"
    pto_sends_data: bool = True
    receiver_stops: tuple[tuple[float, float], ...] = ()
    sender_stops: tuple[tuple[float, float], ...] = ()
    link: int = 1472
    shrinks: tuple[float, int] | None = None
    duration: float = 8.0

    def words(self) -> str:
        """Return what is particular about it, in one line."""
        queue = f"{self.queue_bytes} bytes" if self.queue_bytes is not None else f"{self.queue_packets} packets"
        return (
            f"seed {self.seed}: {self.congestion}, {self.app}, {self.rate / MBIT:.0f} Mbit/s, "
            f"{self.rtt * 1000:.0f} ms, queue {queue}, loss {self.loss:.1%}, {self.competitors} competitors, "
            f"blast {self.blast}, ACK every {self.ack_every}, reorder {self.reorder}, "
            f"stops {self.receiver_stops} {self.sender_stops}, shrinks {self.shrinks}"
        )


def draw(seed: int, *, shrinks: bool) -> Conditions:
    """Return conditions drawn from a seed. shrinks: the path becomes narrower, by 1 byte up to the floor.

    Without it ends are stopped now and then as well; with it they are not, as its bound is one of round trips.
    """
    rnd = random.Random(seed)
    rtt, rate = rnd.choice(RTTS), rnd.choice(RATES) * MBIT
    bdp = max(rtt * rate, 8 * 1500)
    room = int(bdp * rnd.choice((0.25, 0.5, 1, 2, 4)))
    by_bytes = rnd.random() < 0.5
    conditions = Conditions(
        seed=seed,
        congestion=rnd.choice(("cubic", "bbr")),
        rtt=rtt,
        rate=rate,
        queue_bytes=max(room, 3100) if by_bytes else None,
        queue_packets=None if by_bytes else max(room // 1500, 3),
        loss=rnd.choice((0.0, 0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.13, 0.15)),
        burst_loss=rnd.choice((0.0, 0.0, 0.3)),
        ack_loss=rnd.choice((0.0, 0.0, 0.01, 0.05)),
        reorder=rnd.choice((0.0, 0.0, 0.0, 0.01, 0.05)),
        reorder_delay=rtt * rnd.choice((0.05, 0.25, 0.5)),
        competitors=rnd.choice((0, 0, 0, 1, 2)),
        blast=rnd.choice((0.0, 0.0, 0.0, 0.0, 0.5, 0.9)),
        ack_every=rnd.choice((2, 2, 4, 10)),
        ack_at_gaps=rnd.random() < 0.8,
        receive_buffer=rnd.choice((50_000, 200_000, 4_000_000)),
        app=rnd.choice(("bulk", "bulk", "mixed", "sparse", "bursts")),
        pto_sends_data=rnd.random() < 0.5,
    )
    if shrinks:
        when = rnd.uniform(0.5, 1.5) + 6 * rtt
        to = 1471 if rnd.random() < 0.2 else rnd.randint(1200, 1471)
        conditions.shrinks = (when, to)
        # What others send without backing off can leave nothing for the answers to any question.
        conditions.blast = 0.0
        if conditions.queue_packets is not None:
            conditions.queue_packets = max(conditions.queue_packets, 8)
        else:
            conditions.queue_bytes = max(conditions.queue_bytes or 0, 12_000)
        conditions.duration = when + 12.0
    else:
        conditions.duration = max(2.0, 20 * rtt)
        last = conditions.duration - 1.0
        if rnd.random() < 0.4:
            conditions.receiver_stops = tuple((rnd.uniform(0.2, last), 0.3) for _ in range(rnd.choice((1, 3))))
        if rnd.random() < 0.4:
            conditions.sender_stops = tuple((rnd.uniform(0.2, last), 0.95) for _ in range(rnd.choice((1, 2))))
    return conditions
