"""docs/debugging.md promises to say what every counter means."""

from __future__ import annotations

import re
from pathlib import Path

from qtunnel.drops import DropCounts, DropReason

PAGE = Path(__file__).resolve().parents[2] / "docs" / "debugging.md"


def test_debugging_page_explains_every_reason_of_a_drop_and_no_other() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Counters")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| .+ \| .+ \|$", table, flags=re.MULTILINE)
    assert rows == [str(reason) for reason in DropReason]


def test_drop_reasons_read_as_words_and_add_up() -> None:
    counts = DropCounts({DropReason.TOO_BIG: 2})
    counts.update(DropCounts({DropReason.TOO_BIG: 1, DropReason.MALFORMED: 1}))
    assert {str(reason): count for reason, count in counts.items()} == {"too-big": 3, "malformed": 1}
    assert len({str(reason) for reason in DropReason}) == len(DropReason)
