"""What happened, in one line for people; events that only programs care about give none."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from qtunnel.tunnel import events

__all__ = ["event_line"]


@singledispatch
def event_line(event: object) -> str | None:
    """Return the line for an event, or None for one that is not shown."""
    return None


@event_line.register
def _(event: events.Connecting) -> str:
    attempt = "" if event.attempt == 1 else f" (attempt {event.attempt})"
    return f"connecting to {event.remote}{attempt}"


@event_line.register
def _(event: events.Connected) -> str:
    return f"connected to {event.remote}: {_list(event.addresses)}, inner MTU {event.inner_mtu}"


@event_line.register
def _(event: events.AddressesChanged) -> str:
    return f"addresses: {_list(event.addresses)}"


@event_line.register
def _(event: events.RoutesChanged) -> str:
    return f"networks at the server: {_list(event.routes)}"


@event_line.register
def _(event: events.InnerMtuChanged) -> str:
    return f"{_of(event.user)}inner MTU {event.new}{f', was {event.old}' if event.old else ''}"


@event_line.register
def _(event: events.Ipv6Refused) -> str:
    return f"{_of(event.user)}no IPv6 inside: {event.reason}"


@event_line.register
def _(event: events.Disconnected) -> str:
    if event.retry_in is None:
        return f"no tunnel: {event.text}"
    return f"no tunnel: {event.text}; trying again in {event.retry_in:.1f} s"


@event_line.register
def _(event: events.SessionOpened) -> str:
    return f"user {event.user} connected from {event.remote}: {_list(event.addresses)}"


@event_line.register
def _(event: events.SessionClosed) -> str:
    return f"user {event.user} disconnected ({event.remote}): {event.text or event.reason}"


@event_line.register
def _(event: events.PrefixesChanged) -> str:
    refused = f"; not permitted: {_list(event.refused)}" if event.refused else ""
    return f"user {event.user} carries {_list(event.prefixes)}{refused}"


@event_line.register
def _(event: events.RequestRefused) -> str:
    return f"refused a request from {event.remote} ({event.status}): {event.text}"


def _list(items: Iterable[object]) -> str:
    return ", ".join(str(item) for item in items) or "none"


def _of(user: str | None) -> str:
    return "" if user is None else f"user {user}: "
