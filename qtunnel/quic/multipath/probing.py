"""PATH_CHALLENGE and PATH_RESPONSE frames of a path, each for a datagram of its own (RFC 9000 §8.2, §19.17)."""

from __future__ import annotations

from typing import Final

from qtunnel.burst import Address
from qtunnel.quic.multipath.amplification import AMPLIFICATION_FACTOR
from qtunnel.quic.multipath.path_record import PathRecord, Probing
from qtunnel.quic.multipath.path_validation import MIN_DATAGRAM, PathValidation

__all__ = ["PATH_CHALLENGE", "PATH_RESPONSE", "challenge_frames", "response_frames"]

PATH_CHALLENGE: Final = b"\x1a"
PATH_RESPONSE: Final = b"\x1b"


def challenge_frames(record: PathRecord, now: float) -> list[Probing]:
    """Return the challenges that are due now: to the path's address, and to the one it has moved away from."""
    migration = record.migration
    assert migration is not None
    found = []
    if record.validation is not None:
        current = migration.current
        sent = _challenge(record, record.validation, current.remote, current.local, current.allowance.left(), now)
        for probing in sent:
            current.allowance.on_sent(max(probing.size, len(probing.frames)))
        found += sent
    if record.recheck is not None and migration.fallback is not None:
        old = migration.fallback
        found += _challenge(record, record.recheck, old.remote, old.local, None, now)
    return found


def response_frames(record: PathRecord) -> list[Probing]:
    """Return an answer to each challenge, to where it came from and no larger than anti-amplification allows."""
    found = []
    migration = record.migration
    while record.responses and migration is not None:
        data, remote, local, size = record.responses.popleft()
        current = migration.current
        is_current = (remote, local) == (current.remote, current.local)
        left = current.allowance.left() if is_current else AMPLIFICATION_FACTOR * size
        padded = MIN_DATAGRAM if left is None or left >= MIN_DATAGRAM else 0
        if is_current:
            current.allowance.on_sent(padded)
        found.append(Probing(record.path_id, remote, local, PATH_RESPONSE + data, padded))
    return found


def _challenge(
    record: PathRecord,
    validation: PathValidation,
    remote: Address,
    local: str | None,
    left: int | None,
    now: float,
) -> list[Probing]:
    if left is not None and left <= 0:
        return []  # until something comes from there
    challenge = validation.challenge_to_send(now, left)
    if challenge is None:
        return []
    data, size = challenge
    return [Probing(record.path_id, remote, local, PATH_CHALLENGE + data, size)]
