"""The state file of one run: what it made on this machine, written before it is made.

A run that ends as it should takes everything down itself and removes its file. After `kill -9` the file is still
there; `lab clean` reads it and removes exactly what it lists. A run whose process is alive is never touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from netlab import namespace

STATE_DIRECTORY: Final = Path("/run/qtunnel-lab")
CONFIGURATION_DIRECTORY: Final = Path("/etc/netns")
PREFIX: Final = "qlab"


@dataclass(slots=True)
class Process:
    """A process by its id and start time (clock ticks since boot), as ids are used again."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """Return the process that has this id now (start time 0: it has ended already)."""
        return cls(pid, start_time(pid))

    def is_alive(self) -> bool:
        """Tell whether this very process still runs."""
        return self.started != 0 and start_time(self.pid) == self.started


@dataclass(slots=True)
class Ledger:
    """What one run has made: namespaces, processes, and one directory for files, logs and sockets."""

    tag: str
    owner: Process
    namespaces: list[str] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)

    @property
    def file(self) -> Path:
        """The state file."""
        return STATE_DIRECTORY / f"{self.tag}.json"

    @property
    def directory(self) -> Path:
        """The run's own directory; only root may look inside."""
        return STATE_DIRECTORY / self.tag

    @classmethod
    def open(cls) -> Ledger:
        """Begin a run under a tag that no other run has."""
        STATE_DIRECTORY.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            ledger = cls(tag=secrets.token_hex(2), owner=Process.of(os.getpid()))
            # The file appears with its content: without an owner `lab clean` would take it for a dead run's.
            ledger._write_new()
            try:
                ledger.file.hardlink_to(ledger._new_file)
            except FileExistsError:
                continue
            finally:
                ledger._new_file.unlink()
            ledger.directory.mkdir(mode=0o700)
            return ledger

    def namespace(self, host: str) -> str:
        """Record a namespace for a host of this run and return its name."""
        name = f"{PREFIX}-{self.tag}-{host}"
        self.namespaces.append(name)
        self._write()
        return name

    def configuration(self, name: str) -> Path:
        """Return the directory whose files `ip netns exec` lays over /etc for a namespace; made if need be."""
        directory = CONFIGURATION_DIRECTORY / name
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        return directory

    def process(self, pid: int) -> None:
        """Record a process started by this run; those that have ended are forgotten."""
        self.processes = [process for process in self.processes if process.is_alive()]
        self.processes.append(Process.of(pid))
        self._write()

    def take_down(self, *, grace: float = 2.0) -> list[str]:
        """End the processes, remove the namespaces and files; return what was removed, in words."""
        removed = _end(self._living(), grace)
        for name in [name for name in self.namespaces if namespace.exists(name)]:
            namespace.delete(name)
            removed.append(f"namespace {name}")
        for name in self.namespaces:
            shutil.rmtree(CONFIGURATION_DIRECTORY / name, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty, or never made
            CONFIGURATION_DIRECTORY.rmdir()
        self.namespaces = []
        if self.directory.exists():
            shutil.rmtree(self.directory, ignore_errors=True)
            removed.append(f"directory {self.directory}")
        self._new_file.unlink(missing_ok=True)  # of a run killed while it wrote
        self.file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another run's file is in it
            STATE_DIRECTORY.rmdir()
        return removed

    def _living(self) -> list[Process]:
        """Return the processes listed, and whatever else runs in our namespaces (children of theirs)."""
        known = {process.pid: process for process in self.processes if process.is_alive()}
        for name in self.namespaces:
            for pid in namespace.pids(name):
                known.setdefault(pid, Process.of(pid))
        known.pop(os.getpid(), None)
        return list(known.values())

    @property
    def _new_file(self) -> Path:
        return STATE_DIRECTORY / f"{self.tag}.new.{self.owner.pid}"

    def _write(self) -> None:
        self._write_new()
        self._new_file.replace(self.file)

    def _write_new(self) -> None:
        self._new_file.touch(mode=0o600)
        self._new_file.write_text(json.dumps(asdict(self)) + "\n")


def ledgers() -> Iterator[Ledger]:
    """Yield every run that has a state file, alive or not."""
    for file in sorted(STATE_DIRECTORY.glob("*.json")):
        try:
            entry = json.loads(file.read_text())
        except (OSError, ValueError):  # ended meanwhile, or killed between creating and writing
            entry = {}
        yield Ledger(
            tag=file.stem,
            owner=Process(**entry.get("owner", {"pid": 0, "started": 0})),
            namespaces=entry.get("namespaces", []),
            processes=[Process(**process) for process in entry.get("processes", [])],
        )


def clean() -> list[str]:
    """Take down what runs that no longer live have left behind; return what was removed, in words."""
    removed: list[str] = []
    for ledger in ledgers():
        if not ledger.owner.is_alive():
            removed += [f"run {ledger.tag}: {what}" for what in ledger.take_down()]
    for file in STATE_DIRECTORY.glob("*.new.*"):  # of a run killed before it had a state file
        if not start_time(int(file.suffix[1:])):
            file.unlink(missing_ok=True)
            removed.append(f"file {file}")
    return removed


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if there is none or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def _end(processes: list[Process], grace: float) -> list[str]:
    for process in processes:
        _send(process, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and any(process.is_alive() for process in processes):
        time.sleep(0.02)
    for process in processes:
        _send(process, signal.SIGKILL)
    while any(process.is_alive() for process in processes) and time.monotonic() < deadline + 2.0:
        time.sleep(0.01)
    return [f"process {process.pid}" for process in processes]


def _send(process: Process, number: signal.Signals) -> None:
    if process.is_alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
            os.kill(process.pid, signal.SIGCONT)  # a stopped process ends only once it runs again
