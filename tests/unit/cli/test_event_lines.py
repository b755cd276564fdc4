"""Every event that matters to a person is one line."""

from __future__ import annotations

import inspect
from ipaddress import ip_interface, ip_network
from typing import Any

import pytest

from qtunnel.cli.event_lines import event_line
from qtunnel.tunnel import events
from qtunnel.tunnel.events import CloseReason, TunnelEvent

NOT_SHOWN = {"TunnelEvent", "Closed", "ResolveName", "ServerVerified"}
VALUES: dict[str, Any] = {
    "time": 1.0,
    "remote": "192.0.2.1:443",
    "attempt": 2,
    "addresses": (ip_interface("10.7.0.2/32"), ip_interface("fd07::2/128")),
    "inner_mtu": 1400,
    "routes": (ip_network("10.7.0.0/24"),),
    "old": 1400,
    "new": 1300,
    "user": "alice",
    "reason": CloseReason.PEER,
    "text": "a reason",
    "retry_in": 1.5,
    "prefixes": (),
    "refused": (ip_network("10.8.0.0/24"),),
    "status": 401,
}


def kinds() -> list[type[TunnelEvent]]:
    found = [kind for _, kind in inspect.getmembers(events, inspect.isclass) if issubclass(kind, TunnelEvent)]
    return [kind for kind in found if kind.__name__ not in NOT_SHOWN]


def example(kind: type[TunnelEvent], **other: Any) -> TunnelEvent:
    values = VALUES | other
    names = list(inspect.signature(kind).parameters)
    return kind(**{name: values[name] for name in names})


@pytest.mark.parametrize("kind", kinds())
def test_every_event_for_people_has_a_line(kind: type[TunnelEvent]) -> None:
    line = event_line(example(kind))
    assert line
    assert "\n" not in line


def test_what_only_programs_care_about_has_none() -> None:
    assert event_line(example(events.TunnelEvent)) is None
    assert event_line(object()) is None


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            example(events.Connected),
            "connected to 192.0.2.1:443: 10.7.0.2/32, fd07::2/128, inner MTU 1400",
        ),
        (example(events.Connecting), "connecting to 192.0.2.1:443 (attempt 2)"),
        (example(events.Connecting, attempt=1), "connecting to 192.0.2.1:443"),
        (example(events.Disconnected), "no tunnel: a reason; trying again in 1.5 s"),
        (example(events.Disconnected, retry_in=None), "no tunnel: a reason"),
        (example(events.InnerMtuChanged, user=None), "inner MTU 1300, was 1400"),
        (example(events.InnerMtuChanged, old=0), "user alice: inner MTU 1300"),
        (example(events.PrefixesChanged), "user alice carries none; not permitted: 10.8.0.0/24"),
        (example(events.RoutesChanged, routes=()), "networks at the server: none"),
    ],
)
def test_the_words_of_a_line(event: TunnelEvent, line: str) -> None:
    assert event_line(event) == line
