from dataclasses import FrozenInstanceError
from ipaddress import IPv4Interface
from typing import get_args

import pytest

from qtunnel.masque import events
from qtunnel.masque.events import AddressesAssigned, SessionEnded, SessionEvent


def test_the_union_names_every_event() -> None:
    classes = {getattr(events, name) for name in events.__all__} - {SessionEvent}
    assert set(get_args(SessionEvent)) == classes


def test_events_are_values_that_do_not_change() -> None:
    event = AddressesAssigned((IPv4Interface("192.0.2.1/32"),))
    assert event == AddressesAssigned((IPv4Interface("192.0.2.1/32"),), (), ())
    with pytest.raises(FrozenInstanceError):
        SessionEnded(True).clean = False  # type: ignore[misc]  # that it cannot be set is the point
