"""A terminal at which a person answers while a command writes: its pager, Ctrl-C, the end of its input."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from pykoclaw_acp import terminal
from pykoclaw_acp.terminal import Shown


class Screen:
    """Buffers output while a pager owns the terminal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[Shown] | None = None
        self._free = threading.Event()
        self._free.set()
        self._over = False

    @property
    def is_paging(self) -> bool:
        """Whether a pager is open."""
        return not self._free.is_set()

    def write(self, text: Shown) -> None:
        with self._lock:
            if self._held is None:
                terminal.write(text)
            else:
                self._held.append(text)

    def page(self, text: Shown) -> None:
        """Show the text in a pager, until it is closed."""
        with self._lock:
            if self._over:
                return
            self._held = []
            self._free.clear()
        with contextlib.ExitStack() as closed:
            closed.callback(self._free.set)
            closed.callback(self._write_held)
            terminal.paged(text)

    def _write_held(self) -> None:
        with self._lock:
            held, self._held = self._held or [], None
            for one in held:
                terminal.write(one)

    def finish(self) -> None:
        """Wait until the pager is closed; no other one is opened."""
        with self._lock:
            self._over = True
        self._free.wait()


def is_attended() -> bool:
    """Whether a person sees what is written, and can answer it."""
    return sys.stdin.isatty() and terminal.is_terminal()


@contextlib.contextmanager
def answering(read: Callable[[], bool], screen: Screen) -> Iterator[None]:
    """Context of the main thread in which another thread reads answers, by `read`, until that is false:
    at the end of the input, KeyboardInterrupt is raised here, as for Ctrl-C. While a pager is open,
    Ctrl-C is its own; the context ends after the pager.
    """
    over = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not screen.is_paging:
            signal.default_int_handler(number, frame)

    def answer() -> None:
        try:
            with contextlib.suppress(OSError):  # the terminal is gone
                while read():
                    pass
        finally:  # nobody can answer any more: the command must not count as somebody who can
            if not over.is_set():
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    former = signal.getsignal(signal.SIGINT)
    if former is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    threading.Thread(target=answer, name="answers", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        screen.finish()
        signal.signal(signal.SIGINT, former)
