"""The export of the recorded session in a browser: session.html, with all of its calls opened.

The browser is the Chromium of an npm package, pinned in `browser/package-lock.json`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

PAGE: Final = Path(__file__).with_name("session.html")
PICTURE: Final = Path(__file__).with_name("session.png")
BROWSER: Final = Path(__file__).with_name("browser")
INSTALL: Final = (
    *("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"),
    *("--loglevel", "error"),
)
WIDTH: Final = 900  # pixels
WAIT: Final = 300.0  # s; for the package, of 60 MB


def take(page: str) -> None:
    """Write the picture of the page; raises CalledProcessError, TimeoutExpired."""
    if not (BROWSER / "node_modules").exists():
        subprocess.run(INSTALL, cwd=BROWSER, check=True, timeout=WAIT)
    with TemporaryDirectory() as temporary:  # where the package unpacks the browser
        opened = Path(temporary, "page.html")
        opened.write_text(page.replace('<details class="tool">', '<details class="tool" open>'))
        command = ("node", "picture.mjs", opened, PICTURE, str(WIDTH))
        environ = {**os.environ, "TMPDIR": temporary}
        subprocess.run(command, cwd=BROWSER, env=environ, check=True, timeout=WAIT)


def main() -> None:
    """Write the picture, where npm is."""
    if shutil.which("npm") is None:
        sys.stderr.write(f"There is no npm: {PICTURE.name} stays as it is.\n")
        return
    take(PAGE.read_text())


if __name__ == "__main__":
    main()
