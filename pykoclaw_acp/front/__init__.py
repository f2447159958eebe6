"""The process that a client starts."""

from __future__ import annotations


def main() -> None:
    """The entry point of console scripts that were installed before it moved to `__main__`."""
    import runpy  # by name: the front does not know the command line

    runpy.run_module("pykoclaw_acp", run_name="__main__")
