"""What plugins print: standard output belongs to no plugin, so it is dropped, and named once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO, cast


class PluginOutput:
    """Stands for `sys.stdout`: `printed` is called with the thread of a plugin that prints, in that
    thread; what other threads print passes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._printed: dict[int, Callable[[], None]] = {}  # by thread

    @classmethod
    def install(cls) -> PluginOutput:
        """Take the place of `sys.stdout`."""
        made = cls(sys.stdout)
        sys.stdout = cast("TextIO", made)  # as far as `print` is concerned
        return made

    def watch(self, thread: threading.Thread, printed: Callable[[], None]) -> None:
        """Drop what this thread prints, and call `printed` for each piece."""
        assert thread.ident is not None
        self._printed[thread.ident] = printed

    def write(self, text: str) -> int:
        """Write the text, and note that a plugin has printed; returns the number of characters."""
        printed = self._printed.get(threading.get_ident())
        if printed is None:
            return self._stream.write(text)
        printed()
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
