"""The one table of code points of the multipath extension (RFC 10069, as draft-ietf-quic-multipath-21).

Older drafts have other numbers and other layouts; they are not spoken, and an endpoint must not offer two versions
unless it speaks both.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["INITIAL_MAX_PATH_ID", "MAX_PATH_ID", "FrameType", "PathError", "is_multipath_frame"]

INITIAL_MAX_PATH_ID: Final = 0x3E
"""The transport parameter (RFC 10069 §2.1)."""

MAX_PATH_ID: Final = (1 << 32) - 1
"""The largest path id there can be: it takes 32 bits of the nonce (RFC 10069 §2.4)."""


class FrameType(IntEnum):
    """Frame types, with the names of RFC 10069 §4. Only for 1-RTT packets."""

    PATH_ACK = 0x3E
    PATH_ACK_ECN = 0x3F
    PATH_ABANDON = 0x3E75
    PATH_STATUS_BACKUP = 0x3E76
    PATH_STATUS_AVAILABLE = 0x3E77
    PATH_NEW_CONNECTION_ID = 0x3E78
    PATH_RETIRE_CONNECTION_ID = 0x3E79
    MAX_PATH_ID = 0x3E7A
    PATHS_BLOCKED = 0x3E7B
    PATH_CIDS_BLOCKED = 0x3E7C


class PathError(IntEnum):
    """Why a path is abandoned (RFC 10069 §4.2.1)."""

    NO_ERROR = 0x0
    APPLICATION_ABANDON_PATH = 0x3E
    PATH_RESOURCE_LIMIT_REACHED = 0x3E75
    PATH_UNSTABLE_OR_POOR = 0x3E76
    NO_CID_AVAILABLE_FOR_PATH = 0x3E77


_TYPES: Final = frozenset(FrameType)


def is_multipath_frame(frame_type: int) -> bool:
    """Say whether a frame type is one of this extension's."""
    return frame_type in _TYPES
