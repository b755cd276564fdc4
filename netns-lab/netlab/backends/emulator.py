"""Our own emulator: NFQUEUE rules at the router's egress, and one process that decides (netlab.emulator)."""

from __future__ import annotations

import itertools
import json
import socket
import sys
from pathlib import Path
from typing import Any, ClassVar, Final

from netlab import namespace
from netlab.backends.base import Backend
from netlab.daemon import Daemon
from netlab.errors import LabError
from netlab.host import Host
from netlab.ledger import Ledger
from netlab.shape import Shape

PACKAGE_PARENT: Final = Path(__file__).resolve().parents[2]
REPLY_TIMEOUT: Final = 10.0


class EmulatorBackend(Backend):
    """One emulator process for all links of a network."""

    name: ClassVar[str] = "emulator"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._numbers = itertools.count(1)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(REPLY_TIMEOUT)
        with theirs:
            self._process = Daemon(
                [sys.executable, "-m", "netlab.emulator", str(theirs.fileno())],
                name="emulator",
                log=ledger.directory / "emulator.log",
                env={"PYTHONPATH": str(PACKAGE_PARENT)},
                pass_fds=(theirs.fileno(),),
            )
        ledger.process(self._process.pid)

    @staticmethod
    def is_available(host: Host) -> bool:
        """Say yes: where NFQUEUE is missing the kernel's own message says so best, at `attach`."""
        return True

    def attach(self, host: Host, device: str, shape: Shape) -> None:
        """Open a queue in the host's namespace, then send it what leaves by the device."""
        number = next(self._numbers)
        self._ask("add", _port(host, device), namespace=host.namespace, queue=number, shape=shape.as_dict())
        for command in ("iptables", "ip6tables"):
            # FORWARD, not POSTROUTING: only there do packets carry the time of their arrival. Same packets: what
            # is too big has been refused before, and what the router itself sends goes through OUTPUT.
            for chain in ("FORWARD", "OUTPUT"):
                rule = ["-A", chain, "-o", device, "-j", "NFQUEUE", "--queue-num", str(number)]
                host.run([command, "-w", "10", "-t", "mangle", *rule])

    def change(self, host: Host, device: str, shape: Shape) -> None:
        """Tell the process; packets under way keep their time."""
        self._ask("change", _port(host, device), shape=shape.as_dict())

    def unintended_drops(self, host: Host) -> int:
        """Return what the kernel could not queue for us, or not hand over; LabError if the process has died."""
        if self._process.code is not None:
            raise LabError(f"the emulator ended with code {self._process.code}:\n{self._process.last_lines()}")
        lines = namespace.read_proc_net(host.namespace, "netfilter/nfnetlink_queue").splitlines()
        return sum(int(dropped) for line in lines for dropped in line.split()[5:7])

    def cpu_seconds(self) -> float | None:
        """Return the process's CPU time."""
        return float(self._ask("cpu")["cpu_s"])

    def close(self) -> None:
        """End the process."""
        self._control.close()
        self._process.stop()

    def _ask(self, do: str, port: str = "", **details: Any) -> dict[str, Any]:
        try:
            self._control.send(json.dumps({"do": do, "port": port, **details}).encode())
            reply: dict[str, Any] = json.loads(self._control.recv(1 << 20) or b"{}")
        except OSError as error:
            raise LabError(f"the emulator does not answer ({error}):\n{self._process.last_lines()}") from error
        if "error" in reply:
            raise LabError(f"the emulator could not {do} {port}: {reply['error']}")
        return reply


def _port(host: Host, device: str) -> str:
    return f"{host.name}/{device}"
