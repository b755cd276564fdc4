"""Events are values."""

from __future__ import annotations

import dataclasses

import pytest

from qtunnel.quic.events import CloseCause, ConnectionClosed, PacketsReceived


def test_events_compare_by_value_and_cannot_be_changed() -> None:
    event = ConnectionClosed(CloseCause.PEER, 0x100, True, "bye")
    assert event == ConnectionClosed(CloseCause.PEER, 0x100, True, "bye")
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.reason = "other"  # type: ignore[misc]
    assert PacketsReceived(0, [b"a"]) != PacketsReceived(4, [b"a"])


def test_causes_have_a_name_for_people() -> None:
    assert str(CloseCause.NOT_VERIFIED) == "not-verified"
    assert len({cause.value for cause in CloseCause}) == 7
