from __future__ import annotations

import asyncio

import pytest

from qtunnel.aio.uninterrupted import uninterrupted


async def test_work_is_done_to_its_end_and_the_cancellation_comes_after() -> None:
    steps: list[str] = []
    gate = asyncio.Event()

    async def work() -> None:
        steps.append("begun")
        await gate.wait()
        steps.append("done")

    task = asyncio.create_task(uninterrupted(work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert steps == ["begun"]
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["begun", "done"]


async def test_what_the_work_raises_is_raised() -> None:
    async def work() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await uninterrupted(work())


async def test_without_a_cancellation_it_is_an_await() -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    await uninterrupted(work())
