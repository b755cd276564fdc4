"""The two ways to delay, limit, lose and reorder packets, behind one interface; choose() takes the best."""

from __future__ import annotations

from netlab.backends.base import Backend
from netlab.backends.emulator import EmulatorBackend
from netlab.backends.netem import NetemBackend
from netlab.host import Host
from netlab.ledger import Ledger

__all__ = ["BACKENDS", "Backend", "choose"]

BACKENDS: dict[str, type[Backend]] = {"netem": NetemBackend, "emulator": EmulatorBackend}


def choose(name: str | None, host: Host, ledger: Ledger) -> Backend:
    """Return the back end of that name, or without one netem if this kernel has it, tried on a host, else ours.

    Raises LabError if the one asked for is not available.
    """
    for kind in BACKENDS.values() if name is None else [BACKENDS[name]]:
        if name is not None or kind.is_available(host):
            return kind(ledger)
    raise AssertionError("the emulator is always available")
