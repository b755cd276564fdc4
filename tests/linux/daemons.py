"""Programs that run beside a test in a namespace: with a log, under a time limit, ended by their process id."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.linux.namespaces import Namespace

PATIENCE = 30.0
"""Seconds a test waits for what takes a moment; long, as a busy machine may stop for a while."""
LIFE_LIMIT = 400
"""Seconds after which `timeout` ends a daemon, should the test itself be killed."""


class Daemon:
    """One program in a namespace; both of its output streams go to a log.

    It is a child of timeout(1), so that it never outlives a test by much; pid and signals are its own.
    """

    def __init__(
        self,
        host: Namespace,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        input_text: str | None = None,
        life_limit: int = LIFE_LIMIT,
    ) -> None:
        self.log = log
        self.name = log.stem
        inside = ["ip", "netns", "exec", host.name, "timeout", "--kill-after=5", str(life_limit), *command]
        with log.open("ab") as output:
            self._start = output.tell()
            self._process = subprocess.Popen(
                inside,
                stdin=subprocess.DEVNULL if input_text is None else subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
                start_new_session=True,
            )
        if input_text is not None:
            assert self._process.stdin is not None
            self._process.stdin.write(input_text.encode())
            self._process.stdin.close()
        self.pid = self._find_child()

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs; 128 and the signal's number if one ended it."""
        return self._process.poll()

    def text(self) -> str:
        """Return what it has printed since it was started."""
        with self.log.open("rb") as file:
            file.seek(self._start)
            return file.read().decode(errors="replace")

    def wait_for(self, pattern: str, *, timeout: float = PATIENCE, count: int = 1) -> re.Match[str]:
        """Wait until a regular expression is found so many times in its output; return the last of them."""
        deadline = time.monotonic() + timeout
        while True:
            ended = self.code is not None
            found = list(re.finditer(pattern, self.text(), re.MULTILINE))
            if len(found) >= count:
                return found[-1]
            assert not ended, f"{self.name} ended with code {self.code}, without {pattern!r}:\n{self.text()}"
            assert time.monotonic() < deadline, f"no {pattern!r} after {timeout:g} s:\n{self.text()}"
            time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, *, timeout: float = PATIENCE) -> int:
        """Wait for its end; return the exit code."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {timeout:g} s:\n{self.text()}") from None

    def stop(self, number: signal.Signals = signal.SIGTERM, *, timeout: float = PATIENCE) -> int:
        """End it with a signal; return the exit code."""
        self.send(number)
        return self.wait(timeout=timeout)

    def destroy(self) -> None:
        """End it, whatever it takes. Never raises."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self._process.kill()
            self._process.wait()

    def _find_child(self) -> int:
        """Return the id of the program itself: the only child of timeout(1)."""
        parent = self._process.pid
        deadline = time.monotonic() + PATIENCE
        while self._process.poll() is None:
            with contextlib.suppress(OSError):
                if children := Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
                    return int(children[0])
            assert time.monotonic() < deadline, f"{self.name} was not started"
            time.sleep(0.005)
        return parent  # it has ended already


def wait_until(condition: Callable[[], object], what: str, *, timeout: float = PATIENCE) -> float:
    """Wait until condition() is true; return the seconds it took. Fails, saying what is missed, after timeout."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout, f"not within {timeout:g} s: {what}"
        time.sleep(0.02)
    return time.monotonic() - began
