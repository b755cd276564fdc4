"""Processes that run beside an experiment: started with a log, watched, and ended by their id."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from netlab.errors import NotReadyError

CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Daemon:
    """One background process with its log file (both output streams)."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        name: str,
        log: Path,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | dict(env or {}),
                start_new_session=True,
                pass_fds=pass_fds,
            )
        if stdin is not None and self._process.stdin is not None:
            self._process.stdin.write(stdin.encode())
            self._process.stdin.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs."""
        return self._process.poll()

    def text(self) -> str:
        """Return what it has printed until now."""
        return self.log.read_text(errors="replace")

    def wait_for(self, pattern: str, *, timeout: float = 10.0) -> re.Match[str]:
        """Wait until its log matches a regular expression; NotReadyError if it ends or takes too long."""
        deadline = time.monotonic() + timeout
        while True:
            ended = self.code is not None
            if match := re.search(pattern, self.text(), re.MULTILINE):
                return match
            if ended:
                raise NotReadyError(f"{self.name} ended with code {self.code}:\n{self.last_lines()}")
            if time.monotonic() > deadline:
                raise NotReadyError(
                    f"{self.name} did not print {pattern!r} within {timeout:g} s:\n{self.last_lines()}"
                )
            time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def wait(self, *, timeout: float) -> int:
        """Wait for its end and return its exit code; NotReadyError after timeout seconds."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise NotReadyError(f"{self.name} did not end within {timeout:g} s:\n{self.last_lines()}") from error

    def stop(self, *, timeout: float = 5.0) -> int:
        """Ask it to end, insist after timeout seconds, and return its exit code."""
        if self.code is None:
            self.send(signal.SIGTERM)
            self.send(signal.SIGCONT)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                # Its session holds nothing but it and its children; the id is safe while it is not reaped.
                os.killpg(self.pid, signal.SIGKILL)
                self._process.wait()
        return self._process.returncode

    def cpu_seconds(self) -> float:
        """CPU time it and its children have used, all threads, user and system."""
        return sum(_cpu_ticks(pid) for pid in _family(self.pid)) / CLOCK_TICKS

    def memory_bytes(self) -> int:
        """Memory it has in RAM (RSS)."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except OSError:
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def last_lines(self) -> str:
        """Return the last dozen lines of its log, for a message."""
        return "\n".join(self.text().splitlines()[-12:])


def _family(pid: int) -> Iterator[int]:
    """Yield a process and all that descend from it and still run."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:  # ended meanwhile
            continue
        for child in children:
            yield from _family(int(child))


def _cpu_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def wait_until(condition: Callable[[], bool], what: str, *, daemon: Daemon, timeout: float) -> None:
    """Wait for a condition that a daemon brings about; NotReadyError if the daemon ends or timeout passes."""
    deadline = time.monotonic() + timeout
    while not condition():
        if daemon.code is not None:
            raise NotReadyError(f"{daemon.name} ended with code {daemon.code}:\n{daemon.last_lines()}")
        if time.monotonic() > deadline:
            raise NotReadyError(f"no {what} after {timeout:g} s:\n{daemon.last_lines()}")
        time.sleep(0.02)
