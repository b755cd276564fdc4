"""Clients with a token that wait for their handshake: order, bounds, time."""

from __future__ import annotations

from qtunnel.burst import Received
from qtunnel.quic.waiting_clients import MAX_DATAGRAMS, MAX_WAIT, MAX_WAITING, WaitingClients

GROUP = Received([], ("198.18.0.1", 1))


def cid(number: int) -> bytes:
    return number.to_bytes(8)


def test_nobody_waits_at_first() -> None:
    waiting = WaitingClients()
    assert (len(waiting), waiting.get_timer(), waiting.take(4, 1.0)) == (0, None, [])


def test_clients_are_taken_in_the_order_they_came_with_all_their_datagrams() -> None:
    waiting = WaitingClients()
    for number, data in ((1, b"1a"), (2, b"2a"), (1, b"1b"), (3, b"3a")):
        assert waiting.keep(cid(number), GROUP, data, 5.0)
    assert waiting.take(2, 5.0) == [(GROUP, b"1a"), (GROUP, b"1b"), (GROUP, b"2a")]
    assert waiting.take(2, 5.0) == [(GROUP, b"3a")]
    assert len(waiting) == 0


def test_the_next_may_be_taken_from_the_last_call_on() -> None:
    waiting = WaitingClients()
    waiting.keep(cid(1), GROUP, b"", 5.0)
    waiting.keep(cid(2), GROUP, b"", 5.0)
    assert waiting.get_timer() == 5.0
    waiting.take(1, 6.0)
    assert waiting.get_timer() == 6.0
    waiting.take(1, 7.0)
    assert waiting.get_timer() is None


def test_there_is_a_bound_on_clients_and_on_the_datagrams_of_each() -> None:
    waiting = WaitingClients()
    kept = [waiting.keep(cid(number), GROUP, b"", 5.0) for number in range(MAX_WAITING + 2)]
    assert kept == [True] * MAX_WAITING + [False] * 2
    again = [waiting.keep(cid(0), GROUP, b"", 5.0) for _ in range(MAX_DATAGRAMS + 1)]
    assert again == [True] * (MAX_DATAGRAMS - 1) + [False] * 2
    assert len(waiting) == MAX_WAITING


def test_who_waited_too_long_is_dropped() -> None:
    waiting = WaitingClients()
    waiting.keep(cid(1), GROUP, b"", 5.0)
    waiting.keep(cid(2), GROUP, b"", 5.5)
    waiting.keep(cid(1), GROUP, b"", 5.9)
    assert waiting.drop_late(5.0 + MAX_WAIT) == 0
    assert waiting.drop_late(5.25 + MAX_WAIT) == 2
    assert waiting.take(9, 6.0) == [(GROUP, b"")]
