"""A time limit on work in the same thread, pure Python included: what a stuck game is stopped with.

Owns one watching thread per process, started at the first use. Knows nothing of games.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
import time
from collections.abc import Iterator


class Overdue(BaseException):
    """The time limit passed. Raised between two instructions of the guarded code; no ordinary handler takes it for its own."""


class _Watch:
    """Interrupts threads whose time is over. The interpreter raises the exception at the thread's next instruction."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: dict[int, float] = {}
        self._fired: set[int] = set()
        self._wake = threading.Event()
        threading.Thread(target=self._run, name="alfworld-deadline", daemon=True).start()

    def begin(self, seconds: float) -> None:
        """Watch this thread."""
        thread = threading.get_ident()
        with self._lock:
            self._due[thread] = time.monotonic() + seconds
        self._wake.set()

    def end(self) -> None:
        """Stop watching. An exception that is on its way arrives here, not in the caller's next lines."""
        thread = threading.get_ident()
        with self._lock:
            self._due.pop(thread, None)
            fired = thread in self._fired
        while fired:
            time.sleep(0.001)

    def forget(self) -> None:
        """Stop watching after the exception has arrived."""
        with self._lock:
            self._due.pop(threading.get_ident(), None)
            self._fired.discard(threading.get_ident())

    def _run(self) -> None:
        while True:
            self._wake.wait()
            with self._lock:
                if not self._due:
                    self._wake.clear()
                    continue
                now = time.monotonic()
                for thread in [thread for thread, due in self._due.items() if due <= now]:
                    del self._due[thread]
                    self._fired.add(thread)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Overdue))
            time.sleep(0.05)


@functools.cache
def _watch() -> _Watch:
    return _Watch()


@contextlib.contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Raise ``Overdue`` where the guarded code takes longer than ``seconds`` (to about 0.1 s). A call into C is not interrupted; limits
    cannot be nested. ``None`` is no limit."""
    if seconds is None:
        yield
        return
    watch = _watch()
    watch.begin(seconds)
    try:
        try:
            yield
        except Overdue:
            watch.forget()
            raise
        finally:
            watch.end()
    except Overdue:
        watch.forget()
        raise
