"""A client's and a server's books of paths, joined by networks that lose, delay and die; in virtual time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

from qtunnel.burst import Address
from qtunnel.quic.multipath.frames import Frame, NewConnectionId
from qtunnel.quic.multipath.local_cids import LocalCids
from qtunnel.quic.multipath.path_ids import PathIds
from qtunnel.quic.multipath.path_record import PathChanged, PathsEvent
from qtunnel.quic.multipath.path_state import PathState
from qtunnel.quic.multipath.paths import Paths
from qtunnel.quic.multipath.peer_cids import PeerCids

SERVER: Address = ("203.0.113.1", 443)
DELAY = 0.02


class End:
    """One end: its books and what they said."""

    def __init__(self, *, is_client: bool, local_max: int, peer_max: int, is_lenient: bool = False) -> None:
        count = itertools.count(1 if is_client else 1 << 24)
        self.forgotten: list[bytes] = []
        self.paths = Paths(
            is_client=is_client,
            ids=PathIds(local_max=local_max, peer_max=peer_max),
            local_cids=LocalCids(
                new_cid=lambda: next(count).to_bytes(4),
                reset_token=lambda cid: cid * 4,
                peer_limit=8,
                on_retired=self.forgotten.append,
            ),
            peer_cids=PeerCids(limit=8),
            random_bytes=lambda size: next(count).to_bytes(size),
            is_lenient=is_lenient,
        )
        self.events: list[PathsEvent] = []
        self.seen: set[int] = set()

    def state(self, path_id: int) -> PathState | None:
        record = self.paths.records.get(path_id)
        return None if record is None else record.state

    def history(self, path_id: int) -> list[PathState]:
        return [each.state for each in self.events if isinstance(each, PathChanged) and each.path_id == path_id]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class PathPair:
    """remote_of: where the server sees the client of each path. up: whether a path's network carries anything.

    Control frames travel on the lowest path that is up, and are lost with probability `loss`, then sent again.
    """

    def __init__(
        self, *, client_max: int = 3, server_max: int = 3, loss: float = 0.0, seed: int = 1, **client: Any
    ) -> None:
        self.now = 1000.0
        self.loss = loss
        self.dice = random.Random(seed)
        self.client = End(is_client=True, local_max=client_max, peer_max=server_max, **client)
        self.server = End(is_client=False, local_max=server_max, peer_max=client_max)
        self.remote_of: dict[int, Address] = {}
        self.up: dict[int, bool] = {}
        self.frames: list[tuple[bool, Frame]] = []
        self.probing: list[tuple[bool, int, bytes, int]] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._numbers = itertools.count()
        # The connection ids of the handshake.
        self.client.paths.books.local_cids.adopt(0, [(0, b"cli0")])
        self.server.paths.books.local_cids.adopt(0, [(0, b"srv0")])
        for end, cid in ((self.client, b"srv0"), (self.server, b"cli0")):
            end.paths.books.peer_cids.receive(NewConnectionId(0, 0, 0, cid, bytes(16)))
        self.client.paths.start(SERVER)
        self.server.paths.start(self.address(0))
        self.settle()

    def address(self, path_id: int) -> Address:
        return self.remote_of.setdefault(path_id, (f"192.0.2.{path_id % 250 + 1}", 4000))

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._count), action))

    def settle(self, seconds: float = 1.0) -> None:
        """Let that much time pass."""
        self.run_until(lambda: False, self.now + seconds)

    def run_until(self, condition: Callable[[], bool], end: float) -> None:
        self.flush()
        while not condition():
            timers = [each.paths.get_timer() for each in (self.client, self.server)]
            times = [at for at in timers if at is not None] + ([self._heap[0][0]] if self._heap else [])
            following = max(self.now, min(times, default=end))
            if following >= end:
                self.now = end
                return
            self.now = following
            while self._heap and self._heap[0][0] <= self.now:
                heapq.heappop(self._heap)[2]()
            for each in (self.client, self.server):
                each.paths.handle_timer(self.now)
            self.flush()

    def flush(self) -> None:
        for end in (self.client, self.server):
            is_client = end is self.client
            for probing in end.paths.probing_to_send(self.now):
                self.probing.append((is_client, probing.path_id, probing.frames, probing.size))
                self._probe(is_client, probing.path_id, probing.remote, probing.frames, max(probing.size, 60))
            for frame in end.paths.books.outbox.take(10_000):
                self.frames.append((is_client, frame))
                self._send_frame(end, frame)
            while (event := end.paths.next_event()) is not None:
                end.events.append(event)

    def packet(self, path_id: int, *, is_probing: bool = False, size: int = 100, cid: bytes | None = None) -> None:
        """Have the client send a packet with nothing in it on a path; it is received at once."""
        host_cid = cid or self.client.paths.books.peer_cids.current(path_id)
        assert host_cid is not None
        self.server.paths.on_packet(
            host_cid, self.address(path_id), size, self.now, is_newest=True, is_probing=is_probing
        )
        self.flush()

    def _send_frame(self, end: End, frame: Frame) -> None:
        other = self.server if end is self.client else self.client
        if (
            not any(self.up.get(path_id, True) for path_id in other.paths.records)
            or self.dice.random() < self.loss
        ):
            self.at(self.now + 3 * DELAY, lambda: end.paths.books.outbox.on_lost(frame))
            return

        def arrive() -> None:
            other.paths.receive(frame, self.now)
            end.paths.books.on_acked(frame)

        self.at(self.now + DELAY * (1 + self.dice.random()), arrive)

    def _probe(self, is_client: bool, path_id: int, remote: Address, frames: bytes, size: int) -> None:
        sender, receiver = (self.client, self.server) if is_client else (self.server, self.client)
        if not is_client and remote != self.address(path_id):
            return  # nobody is there any more
        if not self.up.get(path_id, True) or self.dice.random() < self.loss:
            return
        cid = sender.paths.books.peer_cids.current(path_id)
        source = self.address(path_id) if is_client else SERVER

        def arrive() -> None:
            if cid not in receiver.paths.books.local_cids.path_of:
                return
            known = receiver.paths.on_packet(cid, source, size, self.now, is_newest=True, is_probing=True)
            if known is None:
                return
            if frames[:1] == b"\x1a":
                receiver.paths.on_challenge(known, frames[1:9], source, size)
            else:
                receiver.paths.on_response(known, frames[1:9], self.now)

        self.at(self.now + DELAY, arrive)
