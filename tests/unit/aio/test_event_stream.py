from __future__ import annotations

import asyncio

from qtunnel.aio.event_stream import MAX_WAITING, EventStream
from qtunnel.tunnel.events import Connecting, TunnelEvent


def event(number: int) -> TunnelEvent:
    return Connecting(time=0.0, remote="192.0.2.1:443", attempt=number)


async def test_every_subscriber_sees_every_event_and_the_end() -> None:
    stream = EventStream()
    first, second = stream.subscribe(), stream.subscribe()
    stream.publish(event(1))
    stream.publish(event(2))
    stream.close()
    assert [each async for each in first] == [event(1), event(2)]
    assert [each async for each in second] == [event(1), event(2)]


async def test_a_late_subscriber_sees_what_comes_after() -> None:
    stream = EventStream()
    stream.publish(event(1))
    late = stream.subscribe()
    stream.publish(event(2))
    stream.close()
    assert [each async for each in late] == [event(2)]


async def test_subscribing_after_the_end_ends_at_once() -> None:
    stream = EventStream()
    stream.close()
    assert [each async for each in stream.subscribe()] == []


async def test_a_reader_that_does_not_read_costs_a_bounded_number_of_events() -> None:
    stream = EventStream()
    reader = stream.subscribe()
    for number in range(MAX_WAITING + 10):
        stream.publish(event(number))
    assert stream.lost == 10
    async with asyncio.timeout(30):
        assert await anext(reader) == event(10)
