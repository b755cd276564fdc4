"""Where log lines go. The log holds what happened to connections; no secret is ever put into it, at any level.

Standard output belongs to the command's own lines, so the log goes to standard error (warnings and worse) or, with
--log-file, to a file (life events too).
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Final, TextIO

from qtunnel.errors import ConfigError

__all__ = ["LogLevel", "log_file", "start_logging"]

_NAME: Final = "qtunnel log"
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"  # decisions
    INFO = "info"  # life events of connections
    WARNING = "warning"  # someone should act
    ERROR = "error"  # we gave up


def start_logging(level: LogLevel | None, file: str | None) -> None:
    """Send the log of qtunnel and its libraries to a file (mode 0600, appended) or to standard error.

    level: None means info into a file and warning otherwise.

    Raises:
        ConfigError: the file cannot be written.
    """
    handler: logging.Handler
    if file is None:
        handler = _StandardError()
        handler.setFormatter(logging.Formatter("qtunnel: %(message)s"))
    else:
        _make_private(Path(file))
        handler = _LogFile(file, encoding="utf-8")
        handler.setFormatter(logging.Formatter(_FORMAT))
    root = logging.getLogger()
    for old in _our_handlers():
        root.removeHandler(old)
        old.close()
    handler.name = _NAME
    root.addHandler(handler)
    chosen = level or (LogLevel.WARNING if file is None else LogLevel.INFO)
    # Libraries stay at warning: what they say below is about bytes, and not ours to vouch for.
    root.setLevel(logging.WARNING)
    logging.getLogger("qtunnel").setLevel(chosen.name)


class _StandardError(logging.StreamHandler[TextIO]):
    """Does without what cannot be written: there is no better place to say so."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Say nothing."""


class _LogFile(logging.FileHandler):
    """Says once, on standard error, that the file cannot be written; a full disk ends no tunnel."""

    _is_said = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Say it, the first time."""
        error = sys.exc_info()[1]
        if not self._is_said:
            self._is_said = True
            reason = error.strerror if isinstance(error, OSError) else error
            print(f"qtunnel: cannot write the log {self.baseFilename}: {reason}", file=sys.stderr)

    def close(self) -> None:
        """Close it, whether or not the rest can be written."""
        with contextlib.suppress(OSError):
            super().close()


def log_file() -> str | None:
    """Return the file the log goes to, None when there is none."""
    return next((each.baseFilename for each in _our_handlers() if isinstance(each, logging.FileHandler)), None)


def _our_handlers() -> list[logging.Handler]:
    return [handler for handler in logging.getLogger().handlers if handler.name == _NAME]


def _make_private(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", field="log_file") from error
