"""Finds the flows in a run of packets: full TCP segments in sequence, or UDP datagrams of one size.

Packets of a flow have one fate at a router, and the kernel takes them as one super-packet; so what they have in
common is found once, for all who ask.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qtunnel.flow_headers import ACK, PSH, Layout, flow_layout, flow_reach
from qtunnel.packet_run import PacketRun, Packets

__all__ = ["LEAST_FLOW", "flow_runs"]

LEAST_FLOW: Final = 12
"""Packets from which on a flow is worth it: the kernel takes fewer as fast one by one, checksums considered.

On one machine a writer, with the kernel's receiving, took alone and together 4.6 and 5.6 us a packet for 8, 4.5
and 4.8 for 12, 4.9 and 4.4 for 16, 4.7 and 3.7 for 46. Of 12 together the receiver acknowledges half as often, and
each ACK crosses the tunnel too."""


WORD: Final = 8


def flow_runs(run: PacketRun, *, least: int = LEAST_FLOW) -> list[Packets]:
    """Divide a run, in order, into runs that are flows, and lists of the rest. Packets may be any bytes.

    least: packets of a flow, 2 or more.
    """
    found: list[Packets] = []
    rest: list[bytes] = []
    at, last_start = 0, run.rows - least
    successions: dict[tuple[Layout, bool], _Successions] = {}
    while at <= last_start:
        count = _length(run, at, successions)
        if count >= least:
            if rest:
                found.append(rest)
                rest = []
            found.append(run.part(at, count, is_flow=True))
        elif count == 1:
            rest.append(run[at])
        else:
            rest += run.part(at, count)
        at += count
    if at < run.rows:
        rest += run.part(at, run.rows - at)
    if rest:
        found.append(rest)
    return found


def _length(run: PacketRun, first: int, known: dict[tuple[Layout, bool], _Successions]) -> int:
    """Return how many packets from first on are one flow; checksums of TCP and UDP are not looked at.

    known: what was found of other flows of the run, to be added to.
    """
    leader = run[first]
    layout = flow_layout(leader)
    if layout is None or run.size < layout.size + WORD:
        return 1
    counts_up, most = flow_reach(leader, run[first + 1], layout)
    key = (layout, counts_up)
    found = known.get(key)
    if found is None:
        found = known[key] = _Successions(run, first, layout, counts_up)
    count = min(most, found.end(first) - first)
    if layout.is_tcp:
        with_psh = found.flags.find(ACK | PSH, first - found.first, first - found.first + count)
        if with_psh >= 0:
            return with_psh + found.first - first + 1
    return count


class _Successions:
    """Which packets of a run, from first on, continue the one before, as headers of one layout do, PSH aside.

    One look at all of them, however many flows they are. flags: of TCP, of each packet from first on.
    """

    __slots__ = ("_ends", "first", "flags")

    def __init__(self, run: PacketRun, first: int, layout: Layout, counts_up: bool) -> None:
        mask, steps = _word_rows(layout, run.size - layout.size, counts_up)
        part = run.part(first, run.rows - first)
        words = part.array(">u8", 0, len(mask)) & mask
        goes_on = (words[1:] - words[:-1] == steps).all(axis=1)
        self.first = first
        self.flags = part.column(layout.l4 + 13) if layout.is_tcp else b""
        self._ends: list[int] = (np.flatnonzero(~goes_on) + (first + 1)).tolist()
        self._ends.append(run.rows)

    def end(self, at: int) -> int:
        """Return the index after the last packet that follows the one at that index."""
        return self._ends[bisect_right(self._ends, at)]


@lru_cache(maxsize=256)
def _word_rows(layout: Layout, payload: int, counts_up: bool) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return, each as a row of 64-bit words, what is compared of a header, and how much each goes up.

    No field that counts lies across two words.
    """
    pad = -layout.size % WORD
    size = layout.size + pad
    followed = layout.followed & ~(PSH * layout.flags_unit)
    mask = np.frombuffer((followed << 8 * pad).to_bytes(size), ">u8").astype(np.uint64)
    steps = [0] * len(mask)
    fields = [(layout.sequence_unit, payload)]
    if counts_up:
        fields += [(layout.identification_unit, 1), (layout.ip_check_unit, -1)]
    for unit, step in fields:
        if unit:
            above, bit = divmod(unit.bit_length() - 1 + 8 * pad, 64)
            steps[-1 - above] += step << bit
    return mask, np.array([step % (1 << 64) for step in steps], np.uint64)
