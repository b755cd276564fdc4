"""Running commands to their end, with a time limit and what they printed."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netlab.errors import CommandError


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that has ended. code is negative for a signal and None after the time limit."""

    argv: tuple[str, ...]
    code: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.code == 0

    @property
    def output(self) -> str:
        """Both streams, the errors last."""
        return self.stdout + self.stderr


def run(
    argv: Sequence[str],
    *,
    timeout: float = 30.0,
    check: bool = True,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> Completed:
    """Run a command to its end (at most timeout seconds) and return what it printed.

    With check, a failure or timeout raises CommandError. env is added to our own environment.
    """
    began = time.monotonic()
    try:
        # A session of its own: Ctrl-C reaches the lab alone, which then takes things down in order.
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | dict(env or {}),
            cwd=cwd,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(f"{argv[0]}: {error.strerror}") from error
    code: int | None = None
    try:
        stdout, stderr = process.communicate(stdin, timeout=timeout)
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    done = Completed(argv=tuple(argv), code=code, stdout=stdout, stderr=stderr, seconds=time.monotonic() - began)
    if check and not done.ok:
        how = f"did not end within {timeout:g} s" if code is None else f"ended with code {code}"
        raise CommandError(f"{' '.join(argv)} {how}", output=done.output)
    return done
