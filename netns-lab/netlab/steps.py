"""A demonstration told step by step: what is done, what came out, whether that is as it should be."""

from __future__ import annotations

import time
from collections.abc import Callable

from netlab.errors import LabError


class StepFailed(LabError):
    """A step came out wrong; the text is what came out."""


class Steps:
    """Prints the steps as they happen and keeps the count for the verdict."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.count = 0
        self._began = time.monotonic()

    def run(self, what: str, action: Callable[[], str]) -> bool:
        """Do one step: the action returns what came out, or raises StepFailed (or another LabError)."""
        self.count += 1
        print(f"{self.count:3}. {what} ...", end=" ", flush=True)
        try:
            outcome, ok = action(), True
        except LabError as error:
            outcome, ok = str(error), False
            self.failed.append(what)
        print(f"-> {outcome} -> {'ok' if ok else 'FAILED'}", flush=True)
        return ok

    def verdict(self, title: str) -> int:
        """Print the last line and return the exit code, 0 if every step was as it should be."""
        took = time.monotonic() - self._began
        if self.failed:
            print(f"{title}: {len(self.failed)} of {self.count} steps FAILED ({took:.0f} s)", flush=True)
            return 1
        print(f"{title}: all {self.count} steps ok ({took:.0f} s)", flush=True)
        return 0
