"""qtunnel.pmtud.events."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

from qtunnel.pmtud.events import PmtudEvent


def test_every_event_says_when_and_why() -> None:
    for kind in get_args(PmtudEvent):
        assert {"time", "reason"} <= {each.name for each in fields(kind)}
