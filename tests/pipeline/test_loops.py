"""Coroutines run to their end, with and without a loop that runs already."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from pipeline.loops import run_to_end


async def doubled(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


async def failing() -> None:
    await asyncio.sleep(0)
    raise ValueError("no")


def test_without_a_loop() -> None:
    assert run_to_end(doubled(2)) == 4
    with pytest.raises(ValueError, match="no"):
        run_to_end(failing())


def test_inside_a_loop() -> None:
    async def cell() -> int:
        with pytest.raises(ValueError, match="no"):
            run_to_end(failing())
        return run_to_end(doubled(2))

    assert asyncio.run(cell()) == 4


def test_an_interrupt_cancels_what_runs_in_the_thread() -> None:
    heard: list[str] = []
    began = threading.Event()

    async def endless() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    async def cell() -> None:
        run_to_end(endless())

    def interrupt() -> None:
        began.wait(10)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    # A kernel leaves the interrupt to Python, asyncio.run would keep it for its own loop.
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
    finally:
        loop.close()
    assert heard == ["cancelled"]
