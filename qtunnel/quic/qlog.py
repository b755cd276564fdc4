"""qlog and key log, written line by line to sinks that are handed in (no file is opened here).

aioquic keeps a connection's whole trace in memory until it ends; a tunnel lives for months. So each event is
written when it happens, as JSON text sequences without the record separators (one JSON object a line). Times are
milliseconds of the `now` given to the connection, not of a wall clock.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from aioquic.quic.logger import QuicLogger, QuicLoggerTrace

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtunnel.quic.settings import LineSink

__all__ = ["LineTrace", "LineTracer", "SecretsFile"]

SECRET_HEADERS: Final = frozenset((b"authorization", b"proxy-authorization", b"cookie"))


class LineTrace(QuicLoggerTrace):
    """One connection's trace. now: the time the next events carry, set by the connection."""

    def __init__(self, *, is_client: bool, odcid: bytes, sink: LineSink) -> None:
        super().__init__(is_client=is_client, odcid=odcid)
        self.now = 0.0
        self._sink = sink
        role = "client" if is_client else "server"
        self._write(
            {
                "qlog_format": "NDJSON",
                "qlog_version": "0.3",
                "trace": {
                    "common_fields": {"ODCID": odcid.hex(), "time_format": "absolute"},
                    "vantage_point": {"name": "qtunnel", "type": role},
                },
            }
        )

    def log_event(self, *, category: str, event: str, data: dict[str, Any]) -> None:
        """Write one event."""
        self._write({"time": self.now * 1000.0, "name": f"{category}:{event}", "data": data})

    def encode_http3_headers_frame(
        self, length: int, headers: list[tuple[bytes, bytes]], stream_id: int
    ) -> dict[str, Any]:
        """Return a HEADERS frame for the log, without credentials and whatever bytes the peer sent."""
        return {
            "frame": {"frame_type": "headers", "headers": [_readable(*header) for header in headers]},
            "length": length,
            "stream_id": stream_id,
        }

    def _write(self, record: dict[str, Any]) -> None:
        self._sink(json.dumps(record, separators=(",", ":"), default=repr))


class LineTracer(QuicLogger):
    """What aioquic asks for a trace. open_sink is called with the trace's name."""

    def __init__(self, open_sink: Callable[[str], LineSink]) -> None:
        super().__init__()
        self._open_sink = open_sink

    def start_trace(self, is_client: bool, odcid: bytes) -> LineTrace:
        """Begin the trace of one connection, named by its original destination connection id and role."""
        name = f"{odcid.hex()}_{'client' if is_client else 'server'}"
        return LineTrace(is_client=is_client, odcid=odcid, sink=self._open_sink(name))

    def end_trace(self, trace: QuicLoggerTrace) -> None:
        """Nothing is left to write."""


class SecretsFile:
    """The file-like object aioquic writes TLS secrets to; passes lines on."""

    def __init__(self, sink: LineSink) -> None:
        self._sink = sink

    def write(self, text: str) -> int:
        """Pass on one line."""
        self._sink(text.rstrip("\n"))
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""


def _readable(name: bytes, value: bytes) -> dict[str, str]:
    shown = b"(not logged)" if name in SECRET_HEADERS else value
    return {"name": name.decode("utf8", "backslashreplace"), "value": shown.decode("utf8", "backslashreplace")}
