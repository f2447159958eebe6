"""What is installed from a wheel: everything that the program needs at run time."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_holds_migrations_types_and_the_wrapper(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for path in (ROOT / "migrations").glob("*.sql"):
            packed = f"pykoclaw_acp/store/migrations/{path.name}"
            assert archive.read(packed) == path.read_bytes()
        assert "pykoclaw_acp/py.typed" in names
        for name in ("install.sh", "user/pykoclaw-acp.service", "system/sysusers.conf"):
            packed = f"pykoclaw_acp/units/{name}"
            assert archive.read(packed) == (ROOT / "deploy" / name).read_bytes()
        assert any(name.endswith("/share/man/man1/pykoclaw-acp.1") for name in names)
        mode = archive.getinfo("pykoclaw_acp/worker/claude-exec").external_attr >> 16
        assert mode & stat.S_IXUSR, "the CLI's wrapper must be executable"
        entry_points = next(name for name in names if name.endswith("entry_points.txt"))
        assert b"acp = pykoclaw_acp.plugin:AcpPlugin" in archive.read(entry_points)
        assert not any(name.startswith("tests/") for name in names)
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
        assert "\n# pykoclaw-acp\n" in metadata
        assert "](docs/" not in metadata, "relative links lead nowhere on the package page"
