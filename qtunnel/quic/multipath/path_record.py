"""What is kept of one path while it is opened, used and closed, and what its book-keeping reports."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from qtunnel.burst import Address
from qtunnel.quic.multipath.path_migration import Move, PathMigration
from qtunnel.quic.multipath.path_state import PathState
from qtunnel.quic.multipath.path_status import PathPreference
from qtunnel.quic.multipath.path_validation import INITIAL_PTO, PathValidation

__all__ = [
    "MAX_RESPONSES",
    "NoPathLeft",
    "PathChanged",
    "PathMoved",
    "PathRecord",
    "PathsAvailable",
    "PathsEvent",
    "Probing",
    "Reason",
]

MAX_RESPONSES: Final = 8
"""PATH_RESPONSE frames of one path that may wait; of a flood of challenges the oldest go unanswered."""


class Reason(Enum):
    """Why a path changed its state."""

    OPENED_HERE = "opened here"
    OPENED_BY_PEER = "opened by the peer"
    CHALLENGED = "challenged"
    VALIDATED = "validated"
    VALIDATION_FAILED = "validation failed"
    NO_CONNECTION_ID = "the peer has issued no connection id"
    PREFERENCE = "preference"
    ABANDONED_HERE = "abandoned here"
    ABANDONED_BY_PEER = "abandoned by the peer"
    DRAINED = "drained"


@dataclass(frozen=True, slots=True)
class PathChanged:
    """A path is in another state. When it is CLOSED, what was not acknowledged is lost (RFC 10069 §3.4.3)."""

    path_id: int
    state: PathState
    reason: Reason


@dataclass(frozen=True, slots=True)
class PathMoved:
    """The peer of a path has another address: for HOST, window, RTT and size start over."""

    path_id: int
    move: Move
    remote: Address


@dataclass(frozen=True, slots=True)
class PathsAvailable:
    """A client that could not open a path can try again."""


@dataclass(frozen=True, slots=True)
class NoPathLeft:
    """All paths are gone: close the connection, or, as a client, open another (RFC 10069 §3.4)."""


PathsEvent = PathChanged | PathMoved | PathsAvailable | NoPathLeft


@dataclass(frozen=True, slots=True)
class Probing:
    """Frames to be sent alone in a datagram of `size` bytes (0: as short as it gets) on a path, to one address."""

    path_id: int
    remote: Address
    local: str | None
    frames: bytes
    size: int


@dataclass(slots=True)
class PathRecord:
    """One path id in use. migration: None where there never was an address, as the path was abandoned unused.

    pto: seconds, set from outside as its RTT becomes known. is_backup_wanted: as configured here.
    """

    path_id: int
    state: PathState
    migration: PathMigration | None
    preference: PathPreference
    pto: float = INITIAL_PTO
    is_backup_wanted: bool = False
    validation: PathValidation | None = None
    recheck: PathValidation | None = None  # of the address the path has moved away from
    responses: deque[tuple[bytes, Address, str | None, int]] = field(
        default_factory=lambda: deque(maxlen=MAX_RESPONSES)
    )  # (data, address, ours, bytes received with it)
    host_cid: bytes | None = None  # by which the peer speaks to us on this path
    drained_at: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether something may be sent on it."""
        return self.state not in (PathState.ABANDONING, PathState.CLOSED)

    @property
    def is_validated(self) -> bool:
        """Whether it may carry data."""
        return self.state in (PathState.ACTIVE, PathState.STANDBY)

    @property
    def is_backup(self) -> bool:
        """Whether one end wants it as a backup."""
        return self.preference.is_backup_here or self.preference.is_backup_there

    @property
    def allowed(self) -> int | None:
        """Bytes that may be sent to its present address; None for any number."""
        return 0 if self.migration is None else self.migration.current.allowance.left()

    def timers(self, *, has_cid: bool) -> list[float]:
        """Return when something is due, seconds. has_cid: whether the peer has issued a connection id for it."""
        found = [self.drained_at] if self.drained_at is not None else []
        if self.is_open:
            for validation, allowed in ((self.validation, self.allowed), (self.recheck, None)):
                at = validation.get_timer(can_send=has_cid and allowed != 0) if validation is not None else None
                if at is not None:
                    found.append(at)
        return found
