"""E1: what a tunnel adds to each packet, by size and family, read from the wire."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import ClassVar, Final

from netlab.errors import LabError
from netlab.experiment import LINK_MTU, Experiment, Parameter, Trial, Up, families_outside
from netlab.judge import Judge
from netlab.pings import largest, ping
from netlab.tunnels.base import Feature
from netlab.wire import Packet

BOUNDS: Final = {4: 54, 6: 74}
"""IP, UDP, QUIC's short header with a 4-byte connection id, the AEAD's tag, frame type and context, no length."""
ACKNOWLEDGEMENT: Final = 8
"""Bytes an acknowledgement in the same packet may add, as long as the packet still fits."""
SIZES: Final = (100, 300, 576, 1000, 1280)


class Overhead(Experiment):
    """Pings with DF of several sizes, both families inside and outside, against a capture at the router."""

    name: ClassVar[str] = "overhead"
    number: ClassVar[str] = "E1"
    title: ClassVar[str] = "bytes added to each packet, and the largest packet that fits"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "pings": Parameter(5, "echoes of each size"),
        "most_v4": Parameter(BOUNDS[4], "bytes that may be added with IPv4 outside"),
        "most_v6": Parameter(BOUNDS[6], "bytes that may be added with IPv6 outside"),
    }

    def measure(self, trial: Trial) -> None:
        """Measure each family outside on a network of its own."""
        for outer in families_outside(trial):
            with trial.bring_up("path", outer=outer) as up:
                packets: list[Packet] = []
                for inner in _families_inside(trial):
                    packets += self._one(trial, up, outer, inner)
            trial.metric(f"biggest_outside_v{outer}", max(packet.length for packet in packets), "bytes")
            trial.metric(f"fragments_v{outer}", sum(packet.is_fragment for packet in packets))
            trial.metric(f"without_df_v{outer}", sum(not packet.dont_fragment for packet in packets))

    def _one(self, trial: Trial, up: Up, outer: int, inner: int) -> list[Packet]:
        target = up.server_inner(inner)
        limit = largest(up.client, target, low=576, high=LINK_MTU)
        trial.metric(f"largest_{inner}_in_{outer}", limit, "bytes")
        seen: list[Packet] = []
        added: list[int] = []
        missed = 0
        for size in sorted({*SIZES, limit}):
            with up.capture() as capture:
                ping(up.client, target, count=int(trial.parameters["pings"]), size=size, interval=0.05)
            packets = capture.packets()
            missed += capture.dropped
            if not trial.has(Feature.DEVICE):  # without a tunnel the replies are the kernel's, which sets no DF
                packets = [packet for packet in packets if not packet.outgoing]
            seen += packets
            # What carries the ping is at least as large; acknowledgements alone are smaller.
            here = [packet.length - size for packet in packets if not packet.outgoing and packet.length >= size]
            if not here:  # sent in fragments, each of them smaller
                trial.say(f"no single packet carries a ping of {size} bytes")
                continue
            trial.metric(f"added_{inner}_in_{outer}_at_{'largest' if size == limit else size}", min(here), "bytes")
            added += here
        if not added:
            raise LabError("no ping of any size was seen on the wire")
        trial.metric(f"added_{inner}_in_{outer}", statistics.mode(added), "bytes")
        trial.metric(f"added_least_{inner}_in_{outer}", min(added), "bytes")
        trial.metric(f"added_most_{inner}_in_{outer}", max(added), "bytes")
        trial.metric(f"not_captured_{inner}_in_{outer}", missed)
        return seen

    def judge(self, judge: Judge) -> None:
        """Compare with what standard headers need at least."""
        for outer in families_outside(judge):
            bound = int(judge.parameters[f"most_v{outer}"])
            for inner in _families_inside(judge):
                name = f"IPv{inner} in IPv{outer}"
                judge.at_most(f"{name}: added to most packets", f"added_{inner}_in_{outer}", bound, "bytes")
                judge.at_most(
                    f"{name}: added at most", f"added_most_{inner}_in_{outer}", bound + ACKNOWLEDGEMENT, "bytes"
                )
                judge.at_least(
                    f"{name}: largest with DF", f"largest_{inner}_in_{outer}", LINK_MTU - bound, "bytes"
                )
                judge.at_most(f"{name}: packets missed by the capture", f"not_captured_{inner}_in_{outer}", 0)
            judge.at_most(f"IPv{outer} outside: biggest packet", f"biggest_outside_v{outer}", LINK_MTU, "bytes")
            judge.at_most(f"IPv{outer} outside: fragments", f"fragments_v{outer}", 0)
            judge.at_most(f"IPv{outer} outside: packets without DF", f"without_df_v{outer}", 0)


def _families_inside(asked: Trial | Judge) -> tuple[int, ...]:
    return (4, 6) if asked.has(Feature.IPV6_INSIDE) else (4,)
