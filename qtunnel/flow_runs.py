"""Finds the flows in a run of packets: full TCP segments in sequence, or UDP datagrams of one size.

Packets of a flow have one fate at a router, and the kernel takes them as one super-packet; so what they have in
common is found once, for all who ask.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qtunnel.flow_headers import PSH, Layout, flow_layout, flow_reach
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
    while at <= last_start:
        layout = flow_layout(run[at])
        count = 1 if layout is None else _length(run, at, layout)
        if count >= least:
            if rest:
                found.append(rest)
                rest = []
            found.append(run.part(at, count, is_flow=True))
        else:
            rest += run.part(at, count)
        at += count
    if at < run.rows:
        rest += run.part(at, run.rows - at)
    if rest:
        found.append(rest)
    return found


def _length(run: PacketRun, first: int, layout: Layout) -> int:
    """Return how many packets from first on are one flow; checksums of TCP and UDP are not looked at."""
    counts_up, most = flow_reach(run[first], run[first + 1], layout)
    count = min(most, run.rows - first)
    if count < 2 or run.size < layout.size + WORD:
        return 1
    payload = run.size - layout.size
    mask, steps = _word_rows(layout, payload, counts_up)
    words = run.part(first, count).array(">u8", 0, len(mask)) & mask
    goes_on = (words[1:] - words[:-1] == steps).all(axis=1)
    if goes_on.all():
        return count
    count = int(goes_on.argmin()) + 1
    before, packet = (
        int.from_bytes(run[first + at][: layout.size]) & layout.followed for at in (count - 1, count)
    )
    has_psh = layout.is_tcp and packet == before + layout.step(payload, counts_up) + PSH * layout.flags_unit
    return count + has_psh


@lru_cache(maxsize=256)
def _word_rows(layout: Layout, payload: int, counts_up: bool) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return, each as a row of 64-bit words, what is compared of a header, and how much each goes up.

    No field that counts lies across two words.
    """
    pad = -layout.size % WORD
    size = layout.size + pad
    mask = np.frombuffer((layout.followed << 8 * pad).to_bytes(size), ">u8").astype(np.uint64)
    steps = [0] * len(mask)
    fields = [(layout.sequence_unit, payload)]
    if counts_up:
        fields += [(layout.identification_unit, 1), (layout.ip_check_unit, -1)]
    for unit, step in fields:
        if unit:
            above, bit = divmod(unit.bit_length() - 1 + 8 * pad, 64)
            steps[-1 - above] += step << bit
    return mask, np.array([step % (1 << 64) for step in steps], np.uint64)
