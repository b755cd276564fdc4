"""Packets of one size in one buffer: what bulk data comes as, and stays, from one edge to the other.

A run costs what a packet costs, wherever packets of a kind have one fate: a super-packet of the TUN is one, and so
are the datagrams the kernel received together. To all other code it is a sequence of bytes like any list.

    data    ..HHHHPPPPPPPP..HHHHPPPPPPPP..HHHHPPPPPPPP
              ^start        ^start + stride
              <---- size ---->                              three packets

Copies are made where the buffer changes hands, never where a header is taken off: that moves start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["PacketRun", "Packets", "flatten", "total_size"]


class PacketRun(Sequence[bytes]):
    """rows packets of size bytes, one every stride bytes of data. It never changes; equal to what has the same.

    is_flow: they are segments of one flow, in order: headers differ only in what counts up from packet to packet,
    and in checksums; the last may have PSH. Those of IPv4 headers are right (ip/flow_runs.py).
    """

    __slots__ = ("data", "is_flow", "rows", "size", "start", "stride")

    def __init__(
        self, data: bytes, size: int, rows: int, *, start: int = 0, stride: int = 0, is_flow: bool = False
    ) -> None:
        self.data = data
        self.size = size
        self.rows = rows
        self.start = start
        self.stride = stride or size
        self.is_flow = is_flow

    @classmethod
    def of(cls, packets: Sequence[bytes]) -> PacketRun:
        """Return a copy of packets that are all of one size; at least one."""
        return packets if isinstance(packets, cls) else cls(b"".join(packets), len(packets[0]), len(packets))

    def __len__(self) -> int:
        return self.rows

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> PacketRun: ...
    def __getitem__(self, index: int | slice) -> bytes | PacketRun:
        if isinstance(index, slice):
            first, stop, step = index.indices(self.rows)
            if step != 1:
                raise ValueError("a run has no steps")
            return self.part(first, max(0, stop - first))
        if not -self.rows <= index < self.rows:
            raise IndexError("no such packet in the run")
        at = self.start + index % self.rows * self.stride
        return self.data[at : at + self.size]

    def __iter__(self) -> Iterator[bytes]:
        data, size, stride = self.data, self.size, self.stride
        begin = self.start
        return iter([data[at : at + size] for at in range(begin, begin + self.rows * stride, stride)])

    def __eq__(self, other: object) -> bool:
        """Return whether other is a list or run of the same packets in the same order."""
        return list(self) == list(other) if isinstance(other, list | PacketRun) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as lists have none

    def __repr__(self) -> str:
        return f"<PacketRun {self.rows} of {self.size}{', one flow' if self.is_flow else ''}>"

    @property
    def total(self) -> int:
        """Bytes of all packets."""
        return self.rows * self.size

    def part(self, first: int, count: int, *, is_flow: bool | None = None) -> PacketRun:
        """Return count packets from index first on, of the same buffer. is_flow: None to keep what is said."""
        return PacketRun(
            self.data,
            self.size,
            count,
            start=self.start + first * self.stride,
            stride=self.stride,
            is_flow=self.is_flow if is_flow is None else is_flow,
        )

    def without(self, prefix: int) -> PacketRun:
        """Return the run without the first prefix bytes of each packet, at most size of them."""
        return PacketRun(self.data, self.size - prefix, self.rows, start=self.start + prefix, stride=self.stride)

    def column(self, at: int) -> bytes:
        """Return byte at of each packet, in order. 0 <= at < size."""
        begin = self.start + at
        return self.data[begin : begin + (self.rows - 1) * self.stride + 1 : self.stride]

    def all_begin_with(self, prefix: bytes) -> bool:
        """Return whether every packet begins with prefix."""
        return len(prefix) <= self.size and all(
            self.column(at).count(value) == self.rows for at, value in enumerate(prefix)
        )

    def array(self, kind: Any = np.uint8, first: int = 0, columns: int | None = None) -> NDArray[Any]:
        """Return a view of shape (count, columns) of items of a numpy type, from byte first of each packet on.

        columns: None for as many as fit.
        """
        kind = np.dtype(kind)
        if columns is None:
            columns = (self.size - first) // kind.itemsize
        return np.ndarray((self.rows, columns), kind, self.data, self.start + first, (self.stride, kind.itemsize))


Packets: TypeAlias = Sequence[bytes]
"""Packets in order: a list, or a PacketRun, which some code handles faster."""


def flatten(groups: Iterable[Packets]) -> list[bytes]:
    """Return the packets of groups, in order."""
    return [packet for group in groups for packet in group]


def total_size(packets: Packets) -> int:
    """Return the bytes of all packets."""
    return packets.total if isinstance(packets, PacketRun) else sum(map(len, packets))
