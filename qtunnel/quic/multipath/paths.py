"""All paths of one connection: opened, validated, moved, abandoned, with ids that never run out (RFC 10069 §3).

It decides; packets, keys and recovery are others'. Frames to send are in books.outbox and may go on any open path,
books.on_acked() and books.outbox.on_lost() are told what became of them; a Probing names its path. After any call
take the events, ask probing_to_send(), and set the timer again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import Final

from qtunnel.burst import Address
from qtunnel.errors import LocalProtocolError
from qtunnel.quic.multipath.amplification import AddressAllowance
from qtunnel.quic.multipath.code_points import PathError
from qtunnel.quic.multipath.frames import (
    Frame,
    MaxPathId,
    PathAbandon,
    PathsBlocked,
    PathStatus,
)
from qtunnel.quic.multipath.local_cids import LocalCids
from qtunnel.quic.multipath.path_books import PathBooks
from qtunnel.quic.multipath.path_ids import PathIds
from qtunnel.quic.multipath.path_migration import Move, PathAddress, PathMigration
from qtunnel.quic.multipath.path_record import (
    NoPathLeft,
    PathChanged,
    PathMoved,
    PathRecord,
    PathsAvailable,
    PathsEvent,
    Probing,
    Reason,
)
from qtunnel.quic.multipath.path_state import PathEvent, PathState, next_state
from qtunnel.quic.multipath.path_status import PathPreference
from qtunnel.quic.multipath.path_validation import PathValidation, ValidationResult
from qtunnel.quic.multipath.peer_cids import PeerCids
from qtunnel.quic.multipath.probing import challenge_frames, response_frames
from qtunnel.quic.token_bucket import TokenBucket

__all__ = ["Paths"]

logger = logging.getLogger(__name__)

DRAIN_PTOS: Final = 3
UNANSWERED_PTOS: Final = 10
"""After so many PTO a path is closed although the peer did not answer PATH_ABANDON (RFC 10069 §3.4)."""
OPENED_PER_SECOND: Final = 5.0
OPENED_AT_ONCE: Final = 8.0
"""Paths a peer may open: each costs a validation (RFC 10069 §7.2)."""


class Paths:
    """ids, local_cids, peer_cids: the books of this connection. random_bytes: unpredictable data.

    is_lenient: towards a peer with quirks (docs/design/0006-peer-quirks.md).
    """

    def __init__(
        self,
        *,
        is_client: bool,
        ids: PathIds,
        local_cids: LocalCids,
        peer_cids: PeerCids,
        random_bytes: Callable[[int], bytes],
        is_lenient: bool = False,
    ) -> None:
        self.books = PathBooks(
            ids=ids,
            local_cids=local_cids,
            peer_cids=peer_cids,
            is_newest=lambda frame: self.records[frame.path_id].preference.is_newest(frame),
            is_lenient=is_lenient,
        )
        self.records: dict[int, PathRecord] = {}
        self.refused = 0
        """Packets that would have opened a path too soon after others."""
        self._is_client = is_client
        self._random_bytes = random_bytes
        self._events: deque[PathsEvent] = deque()
        self._opened_rate = TokenBucket(rate=OPENED_PER_SECOND, burst=OPENED_AT_ONCE)
        self._alone_until: float | None = None
        self._early: dict[int, PathPreference] = {}  # of paths whose first packet is still to come

    # -- opening and closing

    def start(self, remote: Address, *, local: str | None = None) -> None:
        """Begin with path 0, on which the handshake has validated the peer, and issue connection ids."""
        address = PathAddress(remote, AddressAllowance(is_validated=True), local)
        self._make(0, address, PathState.ACTIVE)
        self.books.replenish()

    def open(
        self, remote: Address, now: float, *, local: str | None = None, is_backup: bool = False
    ) -> int | None:
        """Open a path, as a client; return its id, or None if that has to wait for the peer (PathsAvailable)."""
        if not self._is_client:
            raise LocalProtocolError("only clients open paths")
        path_id = self.books.take_unused()
        if path_id is None:
            return None
        address = PathAddress(remote, AddressAllowance(is_validated=True), local)
        record = self._make(path_id, address, PathState.OPENING)
        record.is_backup_wanted = is_backup
        if is_backup:
            self._prefer(record, True)
        record.validation = self._validation(record, now)
        self._report(record, Reason.OPENED_HERE)
        return path_id

    def move(self, path_id: int, now: float, *, local: str | None) -> None:
        """Send from another address of ours from now on, as a client (RFC 9000 §9.2)."""
        record = self._open_record(path_id)
        assert record.migration is not None
        current = record.migration.current
        record.migration = PathMigration(PathAddress(current.remote, AddressAllowance(is_validated=True), local))
        self.books.outbox.put(self.books.peer_cids.change(path_id))
        record.validation = self._validation(record, now)

    def abandon(self, path_id: int, now: float, error: int = PathError.NO_ERROR) -> None:
        """Send nothing more on a path and tell the peer so, on another one (RFC 10069 §3.4)."""
        record = self._open_record(path_id)
        self._abandon(record, error, Reason.ABANDONED_HERE, now + UNANSWERED_PTOS * self.max_pto(), now)

    def max_pto(self) -> float:
        """Return the largest PTO of all paths, seconds: for closing, draining and key updates (§2.5, §2.6)."""
        return max((record.pto for record in self.records.values() if record.is_open), default=1.0)

    # -- packets and frames in

    def on_packet(
        self,
        host_cid: bytes,
        remote: Address,
        size: int,
        now: float,
        *,
        is_newest: bool,
        is_probing: bool,
        local: str | None = None,
    ) -> int | None:
        """Take note of a packet that opened; return its path id, None if nothing may be done about it.

        host_cid: the id it was addressed to. size: of its datagram, bytes. is_newest: its number is the largest of
        the path. Packets with one address, cid and kind may be told of as one, sizes summed.
        """
        path_id = self.books.local_cids.path_of[host_cid]
        record = self.records.get(path_id)
        if record is None:
            return self._on_first_packet(path_id, host_cid, remote, size, now, local)
        if record.migration is None or self._is_client or not record.is_open:
            return path_id
        move = record.migration.on_packet(
            remote, size, now, is_newest=is_newest, is_probing=is_probing, local=local
        )
        if move in (Move.PORT, Move.HOST):
            self._on_moved(record, host_cid, move, now)
        return path_id

    def on_challenge(
        self, path_id: int, data: bytes, remote: Address, size: int, *, local: str | None = None
    ) -> None:
        """Take PATH_CHALLENGE data: it is answered on the same path, to where it came from (RFC 10069 §3.1)."""
        record = self.records.get(path_id)
        if record is not None and record.is_open:
            record.responses.append((data, remote, local, size))

    def on_response(self, path_id: int, data: bytes, now: float) -> None:
        """Take PATH_RESPONSE data. An answer to nothing is ignored, as one that came late is one too."""
        record = self.records.get(path_id)
        if record is None or not record.is_open:
            return
        if record.recheck is not None and record.recheck.on_response(data, now):
            return
        validation = record.validation
        if validation is None or not validation.on_response(data, now):
            return
        assert record.migration is not None
        record.migration.on_validated()
        record.recheck = None
        if validation.is_over:
            record.validation = None
            if not record.is_validated:
                event = PathEvent.VALIDATED_AS_BACKUP if record.is_backup else PathEvent.VALIDATED
                self._enter(record, event, Reason.VALIDATED)
                if record.preference.is_backup_here:
                    self.books.outbox.put(record.preference.repeat())

    def receive(self, frame: Frame, now: float, *, received_by: bytes = b"") -> None:
        """Take a frame of the extension. received_by: the connection id its packet was addressed to.

        Raises: PeerProtocolError: close the connection with its code.
        """
        if not isinstance(frame, MaxPathId | PathsBlocked) and not self.books.ids.is_alive(frame.path_id):
            return
        if isinstance(frame, PathAbandon):
            self._on_abandon(frame, now)
        elif isinstance(frame, PathStatus):
            self._on_status(frame)
        else:
            self.books.receive(frame, received_by)
            self._tell_available()

    # -- preferences

    def prefer(self, path_id: int, *, is_backup: bool) -> None:
        """Want a path used only when no other is left, or like any other."""
        record = self._open_record(path_id)
        record.is_backup_wanted = is_backup
        self._prefer(record, is_backup)

    def follow_health(self, healthy: Collection[int]) -> None:
        """Tell the peer which paths to use while all that are no backups are ill (RFC 10069 §3.3)."""
        validated = [record for record in self.records.values() if record.is_validated]
        is_well = any(
            record.path_id in healthy and not record.is_backup_wanted and not record.preference.is_backup_there
            for record in validated
        )
        for record in validated:
            wanted = record.is_backup_wanted if is_well else record.path_id not in healthy
            if wanted != record.preference.is_backup_here:
                self._prefer(record, wanted)

    # -- out

    def probing_to_send(self, now: float) -> list[Probing]:
        """Return challenges and responses that are due, each for a datagram of its own. They count as sent."""
        found: list[Probing] = []
        for record in list(self.records.values()):
            has_cid = self.books.peer_cids.current(record.path_id) is not None
            if not record.is_open or record.migration is None or not has_cid:
                continue
            found += response_frames(record)
            sent = challenge_frames(record, now)
            if sent and record.state is PathState.OPENING:
                self._enter(record, PathEvent.CHALLENGED, Reason.CHALLENGED)
            found += sent
        return found

    def next_event(self) -> PathsEvent | None:
        """Return what happened, one at a time."""
        return self._events.popleft() if self._events else None

    # -- time

    def get_timer(self) -> float | None:
        """Return when handle_timer or probing_to_send has something to do."""
        times = []
        for record in self.records.values():
            times += record.timers(has_cid=self.books.peer_cids.current(record.path_id) is not None)
        if self._alone_until is not None:
            times.append(self._alone_until)
        return min(times, default=None)

    def handle_timer(self, now: float) -> None:
        """Let validations fail and abandoned paths go."""
        for record in list(self.records.values()):
            if record.drained_at is not None and now >= record.drained_at:
                self._close(record)
                continue
            if not record.is_open:
                continue
            if record.recheck is not None:
                record.recheck.handle_timer(now)
                record.recheck = None if record.recheck.is_over else record.recheck
            if record.validation is not None:
                record.validation.handle_timer(now)
                if record.validation.result is ValidationResult.FAILED:
                    self._on_validation_failed(record, now)
        if self._alone_until is not None and now >= self._alone_until:
            self._alone_until = None
            if not self._has_open():
                self._events.append(NoPathLeft())

    def excuse(self, duration: float) -> None:
        """Let no validation fail for time in which we did not run, seconds."""
        for record in self.records.values():
            if record.validation is not None:
                record.validation.excuse(duration)

    # -- inside

    def _make(self, path_id: int, address: PathAddress | None, state: PathState) -> PathRecord:
        migration = PathMigration(address) if address is not None else None
        preference = self._early.pop(path_id, PathPreference(path_id))
        record = self.records[path_id] = PathRecord(path_id, state, migration, preference)
        self._alone_until = None
        return record

    def _validation(self, record: PathRecord, now: float, *, needs_size: bool = True) -> PathValidation:
        # Of a new path nobody knows the RTT, and the other paths' say something.
        pto = min(record.pto, self.max_pto())
        return PathValidation(now, pto=pto, random_bytes=self._random_bytes, needs_size=needs_size)

    def _on_first_packet(
        self, path_id: int, host_cid: bytes, remote: Address, size: int, now: float, local: str | None
    ) -> int | None:
        if self._is_client or not self._opened_rate.allow(now):
            self.refused += 1
            return None
        self.books.ids.use(path_id)
        address = PathAddress(remote, AddressAllowance(), local)
        address.allowance.on_received(size)
        record = self._make(path_id, address, PathState.OPENING)
        record.host_cid = host_cid
        record.validation = self._validation(record, now)
        self._report(record, Reason.OPENED_BY_PEER)
        return path_id

    def _on_moved(self, record: PathRecord, host_cid: bytes, move: Move, now: float) -> None:
        assert record.migration is not None
        if record.host_cid not in (None, host_cid):  # the peer changed its own: so do we (RFC 9000 §9.5)
            self.books.outbox.put(self.books.peer_cids.change(record.path_id))
        record.host_cid = host_cid
        current = record.migration.current
        record.validation = None if current.allowance.is_validated else self._validation(record, now)
        if record.migration.fallback is None:
            record.recheck = None
        elif record.recheck is None:
            record.recheck = self._validation(record, now, needs_size=False)
        self._events.append(PathMoved(record.path_id, move, current.remote))

    def _on_validation_failed(self, record: PathRecord, now: float) -> None:
        assert record.migration is not None
        record.validation = record.recheck = None
        if record.is_validated and not self._is_client and record.migration.on_validation_failed():
            self._events.append(PathMoved(record.path_id, Move.HOST, record.migration.current.remote))
            return
        has_cid = self.books.peer_cids.current(record.path_id) is not None
        error = PathError.PATH_UNSTABLE_OR_POOR if has_cid else PathError.NO_CID_AVAILABLE_FOR_PATH
        reason = Reason.VALIDATION_FAILED if has_cid else Reason.NO_CONNECTION_ID
        self._abandon(record, error, reason, now + UNANSWERED_PTOS * self.max_pto(), now)

    def _on_abandon(self, frame: PathAbandon, now: float) -> None:
        record = self.records.get(frame.path_id)
        drained_at = now + DRAIN_PTOS * self.max_pto()
        if record is None:
            self.books.ids.use(frame.path_id)
            record = self._make(frame.path_id, None, PathState.OPENING)
        if record.is_open:
            self._abandon(record, PathError.NO_ERROR, Reason.ABANDONED_BY_PEER, drained_at, now)
        elif record.drained_at is not None:
            record.drained_at = min(record.drained_at, drained_at)

    def _abandon(self, record: PathRecord, error: int, reason: Reason, drained_at: float, now: float) -> None:
        self._enter(record, PathEvent.ABANDONED, reason)
        record.drained_at = drained_at
        record.validation = record.recheck = None
        record.responses.clear()
        self.books.stop(record.path_id, error)
        if not self._has_open():
            # A client may open another, and a server waits a moment for it.
            self._alone_until = now if self._is_client else now + record.pto

    def _close(self, record: PathRecord) -> None:
        self._enter(record, PathEvent.DRAINED, Reason.DRAINED)
        record.drained_at = None
        del self.records[record.path_id]
        self.books.close(record.path_id)
        self._tell_available()

    def _on_status(self, frame: PathStatus) -> None:
        record = self.records.get(frame.path_id)
        if record is None:
            self._early.setdefault(frame.path_id, PathPreference(frame.path_id)).receive(frame)
        elif record.is_open and record.preference.receive(frame):
            self._follow_preference(record)

    def _prefer(self, record: PathRecord, is_backup: bool) -> None:
        frame = record.preference.prefer(is_backup)
        if frame is not None:
            self.books.outbox.put(frame)
            self._follow_preference(record)

    def _follow_preference(self, record: PathRecord) -> None:
        event = PathEvent.MADE_BACKUP if record.is_backup else PathEvent.MADE_AVAILABLE
        self._enter(record, event, Reason.PREFERENCE)

    def _tell_available(self) -> None:
        if self.books.can_open_again():
            self._events.append(PathsAvailable())

    def _has_open(self) -> bool:
        return any(record.is_open for record in self.records.values())

    def _open_record(self, path_id: int) -> PathRecord:
        record = self.records.get(path_id)
        if record is None or not record.is_open:
            raise LocalProtocolError(f"there is no open path {path_id}")
        return record

    def _enter(self, record: PathRecord, event: PathEvent, reason: Reason) -> None:
        state = next_state(record.state, event)
        if state is record.state:
            return
        logger.debug("path %d: %s, was %s: %s", record.path_id, state.value, record.state.value, reason.value)
        record.state = state
        self._report(record, reason)

    def _report(self, record: PathRecord, reason: Reason) -> None:
        self._events.append(PathChanged(record.path_id, record.state, reason))
