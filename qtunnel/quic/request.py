"""The request streams of a connection: what each may still do, and which are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Request", "Requests"]


@dataclass(slots=True)
class Request:
    """One request stream, from its headers until QUIC has forgotten it."""

    stream_id: int
    is_connect: bool = False
    has_datagrams: bool = False
    """It is an extended CONNECT, the kind of request that can define HTTP Datagrams (RFC 9297 §2)."""
    is_accepted: bool = False
    """A 2xx response was sent or received; before that, datagrams received are early."""
    send_is_open: bool = True
    receive_is_open: bool = True
    was_aborted: bool = False
    prefix: bytes | None = None
    """Quarter stream id and the registered prefix: what inner packets begin with."""

    @property
    def is_open(self) -> bool:
        """Return whether either direction is."""
        return self.send_is_open or self.receive_is_open


class Requests:
    """Requests by stream id.

    is_discarded(stream_id) returns whether QUIC has forgotten a stream; only then may the request go, for until
    then late data of it can arrive.
    """

    def __init__(self, is_discarded: Callable[[int], bool]) -> None:
        self._is_discarded = is_discarded
        self._by_id: dict[int, Request] = {}

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._by_id.values()))

    def get(self, stream_id: int) -> Request | None:
        """Return the request, or None if there is none (any more, or yet)."""
        return self._by_id.get(stream_id)

    def add(self, request: Request) -> None:
        """Take in a request; an occasion to let go of the discarded ones."""
        for stream_id in [stream_id for stream_id in self._by_id if self._is_discarded(stream_id)]:
            del self._by_id[stream_id]
        self._by_id[request.stream_id] = request

    def packet_streams(self) -> list[Request]:
        """Return those whose datagrams are taken for inner packets now."""
        return [
            request
            for request in self._by_id.values()
            if request.prefix is not None and request.receive_is_open and request.is_accepted
        ]

    def clear(self) -> None:
        """Forget all: the connection is over."""
        self._by_id.clear()
