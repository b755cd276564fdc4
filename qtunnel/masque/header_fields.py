"""What makes the field section of an HTTP/3 message well-formed (RFC 9114 §4.2, §4.3).

aioquic checks some of this, depending on the version; the rules a tunnel relies on are checked here, all of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from qtunnel.errors import PeerProtocolError
from qtunnel.masque.error_codes import HttpErrorCode

__all__ = ["FieldSection", "Headers", "malformed", "parse_field_section"]

Headers = list[tuple[bytes, bytes]]
"""Names and values, pseudo-header fields first, in the order of the wire."""

FIELD_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
FIELD_VALUE: Final = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
CONNECTION_SPECIFIC: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
CONTENT_FIELDS: Final = (b"content-length", b"content-type")
"""With Transfer-Encoding, which HTTP/3 never allows, what a message in capsule mode lacks (RFC 9297 §3.2)."""


@dataclass(frozen=True, slots=True)
class FieldSection:
    """A well-formed field section. pseudo: the pseudo-header fields by name; fields: the others, in order."""

    pseudo: dict[bytes, bytes]
    fields: Headers

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of all lines with that name, in order."""
        return [value for key, value in self.fields if key == name]

    def check_no_content(self) -> None:
        """Check that the message announces no content, as one in capsule mode has none.

        Raises:
            PeerProtocolError: it has Content-Length or Content-Type (RFC 9297 §3.2).
        """
        for name in CONTENT_FIELDS:
            if self.values(name):
                raise malformed(f"a tunnel's message has {name.decode()}")


def parse_field_section(headers: Headers, allowed_pseudo: Collection[bytes]) -> FieldSection:
    """Check a field section and divide it.

    Raises:
        PeerProtocolError: H3_MESSAGE_ERROR, it is malformed.
    """
    pseudo: dict[bytes, bytes] = {}
    fields: Headers = []
    for name, value in headers:
        if FIELD_VALUE.fullmatch(value) is None:
            raise malformed(f"the value of {name!r} has forbidden characters")
        if name.startswith(b":"):
            _check_pseudo(name, pseudo, allowed_pseudo, is_first=not fields)
            pseudo[name] = value
        else:
            _check_field(name, value)
            fields.append((name, value))
    return FieldSection(pseudo, fields)


def malformed(what: str) -> PeerProtocolError:
    """Return the error for a malformed message (RFC 9114 §4.1.2)."""
    return PeerProtocolError(what, error_code=HttpErrorCode.H3_MESSAGE_ERROR)


def _check_pseudo(
    name: bytes, seen: Collection[bytes], allowed_pseudo: Collection[bytes], *, is_first: bool
) -> None:
    if name not in allowed_pseudo:
        raise malformed(f"the pseudo-header field {name!r} does not belong here")
    if name in seen:
        raise malformed(f"the pseudo-header field {name!r} is there twice")
    if not is_first:
        raise malformed(f"the pseudo-header field {name!r} comes behind other fields")


def _check_field(name: bytes, value: bytes) -> None:
    if FIELD_NAME.fullmatch(name) is None:
        raise malformed(f"{name!r} is no lower-case field name")
    if name in CONNECTION_SPECIFIC or (name == b"te" and value != b"trailers"):
        raise malformed(f"the field {name!r} belongs to one connection and not into HTTP/3")
