"""From (bytes, address) pairs to Transmits: runs of equal size to one address become one sendmsg (UDP_SEGMENT)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtunnel.burst import Transmit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qtunnel.burst import Address

__all__ = ["as_transmits", "canonical"]

MAX_SEGMENTS: Final = 64
"""What Linux takes in one UDP_SEGMENT send (UDP_MAX_SEGMENTS before 6.9)."""
MAX_BYTES: Final = 65507 - 7
"""An IPv4 UDP payload's limit, less a little."""


def canonical(address: Address) -> Address:
    """Return one form for an address: IPv6 ones without a zone as (host, port).

    Sockets report IPv6 addresses with flow information and scope, people give them without.
    """
    if len(address) == 4 and address[3] == 0:
        return (address[0], address[1])
    return address


def as_transmits(
    sent: Iterable[tuple[bytes, Address]],
    edges: Mapping[Address, tuple[Address, str | None, int]],
    *,
    join: bool,
) -> list[Transmit]:
    """Return Transmits in order. edges: address -> (as the socket gave it, local address, path id).

    join False keeps every datagram a Transmit of its own. In a joined one only the last datagram may be shorter.
    """
    transmits: list[Transmit] = []
    run: list[bytes] = []
    run_address: Address | None = None
    run_bytes = 0
    for data, address in sent:
        if (
            run
            and join
            and address == run_address
            and len(data) <= len(run[0])
            and len(run[-1]) == len(run[0])
            and len(run) < MAX_SEGMENTS
            and run_bytes + len(data) <= MAX_BYTES
        ):
            run.append(data)
            run_bytes += len(data)
            continue
        if run and run_address is not None:
            transmits.append(_transmit(run, run_address, edges))
        run, run_address, run_bytes = [data], address, len(data)
    if run and run_address is not None:
        transmits.append(_transmit(run, run_address, edges))
    return transmits


def _transmit(
    run: list[bytes], address: Address, edges: Mapping[Address, tuple[Address, str | None, int]]
) -> Transmit:
    remote, local, path_id = edges.get(address, (address, None, 0))
    return Transmit(
        b"".join(run) if len(run) > 1 else run[0],
        remote,
        local,
        segment_size=len(run[0]) if len(run) > 1 else None,
        path_id=path_id,
    )
