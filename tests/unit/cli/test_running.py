"""How a command that stays ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from qtunnel.cli.running import EventPrinter, run_until_ended
from qtunnel.errors import ConnectionFailedError
from qtunnel.tunnel.events import Connecting


def test_what_ends_by_itself_ends() -> None:
    async def main() -> None:
        await asyncio.sleep(0)

    run_until_ended(main())


def test_an_error_comes_out() -> None:
    async def main() -> None:
        raise ConnectionFailedError("no answer")

    with pytest.raises(ConnectionFailedError):
        run_until_ended(main())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_clean_end_and_a_second_one_does_not_stop_the_cleaning_up(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    cleaned = []

    async def main() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.get_running_loop().create_future()
        finally:
            os.kill(os.getpid(), number)
            for _ in range(5):
                await asyncio.sleep(0)
            cleaned.append(True)

    before = signal.getsignal(number)
    run_until_ended(main())
    assert cleaned == [True]
    assert capsys.readouterr().out == "already ending\nended\n"
    assert signal.getsignal(number) == before


def test_an_error_while_cleaning_up_after_a_signal_comes_out() -> None:
    async def main() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            raise ConnectionFailedError("cannot undo") from None

    with pytest.raises(ConnectionFailedError):
        run_until_ended(main())


async def events(count: int) -> AsyncIterator[object]:
    for number in range(count):
        yield Connecting(time=0.0, remote="192.0.2.1:443", attempt=number + 1)
        yield object()


async def test_events_are_printed_to_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    async with EventPrinter() as printer:
        printer.follow(events(3))
    assert len(capsys.readouterr().out.splitlines()) == 3


async def test_nothing_to_follow_is_no_error() -> None:
    async with EventPrinter():
        pass
