"""What can go wrong in the lab itself, as opposed to in what it measures.

LabError
├── CommandError      a command failed or took too long; carries what it printed
└── NotReadyError     something started did not come up in time

Interrupted           SIGTERM or SIGHUP arrived: like Ctrl-C, and like it no error that a step may catch
"""

from __future__ import annotations


class LabError(Exception):
    """Everything the lab raises on purpose."""


class CommandError(LabError):
    """A command failed or took too long. output is what it printed on both streams."""

    def __init__(self, message: str, *, output: str = "") -> None:
        last = "\n".join(output.strip().splitlines()[-15:])
        super().__init__(f"{message}\n{last}" if last else message)
        self.output = output


class NotReadyError(LabError):
    """Something started did not come up in time."""


class Interrupted(KeyboardInterrupt):
    """The lab was asked to end by a signal other than Ctrl-C; everything is being taken down."""
