"""Where qlog and the TLS key log go: files named by configuration, never more than a few open at once."""

from __future__ import annotations

import contextlib
import logging
import re
import stat
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO

from qtunnel.config import QuicConfig
from qtunnel.errors import SystemSetupError

__all__ = ["ConnectionLogs"]

logger = logging.getLogger(__name__)

MAX_OPEN: Final = 32
"""qlog files open at once; the one unused longest is closed, and opened again when it has more to say."""


class ConnectionLogs:
    """Line sinks for the connections of one client or server.

    Raises:
        SystemSetupError: a file cannot be written; said at once, not at the first connection.
    """

    def __init__(self, config: QuicConfig) -> None:
        self._open_files: OrderedDict[Path, TextIO] = OrderedDict()
        self._failed: set[Path] = set()
        self._secrets = None if config.secrets_log_file is None else Path(config.secrets_log_file)
        self._qlog_dir = None if config.qlog_dir is None else Path(config.qlog_dir)
        if self._qlog_dir is not None and not self._qlog_dir.is_dir():
            raise SystemSetupError(
                f"the qlog directory {self._qlog_dir} does not exist", remedy=f"Type: mkdir -p {self._qlog_dir}"
            )
        if self._secrets is not None:
            try:
                self._file(self._secrets)
            except OSError as error:
                raise SystemSetupError(f"cannot write {self._secrets}: {error.strerror}") from error

    @property
    def secrets(self) -> Callable[[str], None] | None:
        """The sink for lines of the key log (SSLKEYLOGFILE), or None."""
        path = self._secrets
        return None if path is None else lambda line: self._write(path, line)

    @property
    def qlog(self) -> Callable[[str], Callable[[str], None]] | None:
        """Starts one trace per connection, or None."""
        directory = self._qlog_dir
        if directory is None:
            return None

        def start(name: str) -> Callable[[str], None]:
            safe = re.sub(r"[^A-Za-z0-9._-]", "_", name) or "trace"
            path = directory / f"{safe}.sqlog"
            return lambda line: self._write(path, line)

        return start

    def close(self) -> None:
        """Close every file."""
        for file in self._open_files.values():
            with contextlib.suppress(OSError):  # what could not be written was said
                file.close()
        self._open_files.clear()

    def _write(self, path: Path, line: str) -> None:
        try:
            self._file(path).write(line + "\n")
        except OSError as error:
            if path not in self._failed:
                self._failed.add(path)
                logger.warning("cannot write %s: %s", path, error.strerror)

    def _file(self, path: Path) -> TextIO:
        file = self._open_files.get(path)
        if file is None:
            file = path.open("a", encoding="utf-8", buffering=1)
            if stat.S_ISREG(path.stat().st_mode):
                path.chmod(0o600)  # both kinds tell more about people than others should read
            self._open_files[path] = file
            while len(self._open_files) > MAX_OPEN:
                with contextlib.suppress(OSError):
                    self._open_files.popitem(last=False)[1].close()
        else:
            self._open_files.move_to_end(path)
        return file
