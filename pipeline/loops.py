"""Running a coroutine to its end from code that is no coroutine, also where an event loop runs already, as it does in a notebook."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_to_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Its result. Where this thread has a running loop, a thread of its own runs it and this one waits; an interrupt cancels it.

    Raises what the coroutine raises.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    outcome: list[T] = []
    errors: list[BaseException] = []
    under_way: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = []
    # Waited for instead of the thread: in CPython 3.11 an interrupted ``join`` takes a running thread for ended.
    begun, over = threading.Event(), threading.Event()

    async def watched() -> T:
        task = asyncio.ensure_future(coroutine)
        under_way.append((asyncio.get_running_loop(), task))
        begun.set()
        return await task

    def work() -> None:
        try:
            outcome.append(asyncio.run(watched()))
        except BaseException as error:
            errors.append(error)
        finally:
            begun.set()
            over.set()

    thread = threading.Thread(target=work, name="run-to-end", daemon=True)
    try:
        thread.start()
        over.wait()
    except KeyboardInterrupt:
        begun.wait()
        for loop, task in under_way:
            # A loop that has closed in the meantime has nothing to cancel.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
        over.wait()
        raise
    if errors:
        raise errors[0]
    return outcome[0]
