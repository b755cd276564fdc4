"""The two pieces of Structured Fields (RFC 9651) that a tunnel needs: a boolean Item in, a string out.

`Capsule-Protocol` is an Item whose value is a boolean; whatever else a peer sends there counts as no field at all
(RFC 9297 §3.4). Parameters are checked for their form and ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["parse_boolean_item", "serialize_string"]

MAX_FIELD_LENGTH: Final = 1024
"""Bytes of a field value looked at; a longer one is no boolean with sensible parameters."""

KEY = rb"[a-z*][a-z0-9_\-.*]*"
BARE_ITEM = rb"|".join(
    (
        rb"-?[0-9]{1,12}\.[0-9]{1,3}",
        rb"@?-?[0-9]{1,15}",
        rb'"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"',
        rb"[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*",
        rb":[A-Za-z0-9+/]*={0,2}:",
        rb"\?[01]",
        rb'%"(?:[\x20\x21\x23\x24\x26-\x7e]|%[0-9a-f]{2})*"',
    )
)
BOOLEAN_ITEM: Final = re.compile(rb" *\?([01])(?:; *" + KEY + rb"(?:=(?:" + BARE_ITEM + rb"))?)* *")


def parse_boolean_item(values: Sequence[bytes]) -> bool | None:
    """Return the boolean a field says, or None when it is absent or says anything else.

    values: the values of all lines with the field's name, in order; several lines make a list, which is no Item.
    """
    if len(values) != 1 or len(values[0]) > MAX_FIELD_LENGTH:
        return None
    match = BOOLEAN_ITEM.fullmatch(values[0])
    return None if match is None else match[1] == b"1"


def serialize_string(text: str) -> bytes:
    """Return text as a structured String; characters outside printable ASCII become a question mark."""
    plain = "".join(char if " " <= char <= "~" else "?" for char in text)
    return b'"' + plain.replace("\\", "\\\\").replace('"', '\\"').encode("ascii") + b'"'
