"""The Dockerfile and the compose file: what can be said of them without building an image."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from pykoclaw_acp.cli.program import cli

ROOT: Final = Path(__file__).parents[2]
CONTAINER: Final = ROOT / "deploy" / "container"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, of all stages, in order."""
    text = (CONTAINER / "Dockerfile").read_text()
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    lines = [line for line in joined.splitlines() if line.strip()]
    return [(line.split(None, 1)[0], line.split(None, 1)[1].strip()) for line in lines]


def last_stage() -> list[tuple[str, str]]:
    """Those of the stage that becomes the image."""
    found = instructions()
    begins = max(at for at, (name, _) in enumerate(found) if name == "FROM")
    return found[begins:]


def compose() -> str:
    return (CONTAINER / "compose.yaml").read_text()


def environment() -> dict[str, str]:
    return dict(
        word.split("=", 1)
        for name, rest in last_stage()
        if name == "ENV"
        for word in shlex.split(rest)
    )


def test_what_is_copied_exists() -> None:
    """From the source, or from an earlier stage."""
    stages = {rest.rpartition(" AS ")[2] for name, rest in instructions() if " AS " in rest}
    made = " ".join(rest for name, rest in instructions() if name == "RUN")
    copied = [shlex.split(rest) for name, rest in instructions() if name == "COPY"]
    assert copied
    for words in copied:
        stage = next((one.partition("=")[2] for one in words if one.startswith("--from=")), None)
        for source in [one for one in words if not one.startswith("--")][:-1]:
            if stage is None:
                assert (ROOT / source).exists(), source
            else:
                assert stage in stages
                assert source in made, f"{source} is made by no RUN"
    assert (ROOT / "constraints.txt").exists(), "read by a RUN"
    build = re.search(r"context: (\S+)\n +dockerfile: (\S+)", compose())
    assert build is not None
    assert (CONTAINER / build[1]).resolve() == ROOT
    assert (ROOT / build[2]) == CONTAINER / "Dockerfile"


def test_every_installed_file_is_pinned_by_hash() -> None:
    """Files are fetched by their hashes, and whatever is installed is one of these, or built from
    the source.
    """
    (run,) = (rest for name, rest in instructions() if name == "RUN" and "constraints.txt" in rest)
    calls = [shlex.split(one) for one in run.split("&&") if "pip " in one]
    fetched, *others = calls
    assert fetched[1] == "download"
    assert "--require-hashes" in fetched
    assert fetched[fetched.index("-r") + 1] == "constraints.txt"
    files = fetched[fetched.index("--dest") + 1]
    assert [call[1] for call in others] == ["wheel", "install"]
    for call in others:
        assert "--no-index" in call
        assert call[call.index("--find-links") + 1] == files
    for entry in re.split(r"\n(?=\S)", (ROOT / "constraints.txt").read_text()):
        assert entry.startswith("#") or "--hash=sha256:" in entry, entry


def test_user_is_not_root_and_owns_its_files() -> None:
    users = [rest for name, rest in last_stage() if name == "USER"]
    assert users
    assert users[-1].partition(":")[0] not in ("root", "0")
    runs = " ".join(rest for name, rest in last_stage() if name == "RUN")
    made = re.search(r"install -d -o (\S+) -g \S+ -m 700 ([^&]+)", runs)
    assert made is not None
    assert made[1] == users[-1]
    written = made[2].split()
    (volumes,) = (re.findall(r'"(/\w+)"', rest) for name, rest in last_stage() if name == "VOLUME")
    assert set(volumes) < set(written)
    variables = environment()
    places = {variables[f"PYKOCLAW_{one}"] for one in ("DATA", "STATE")}
    assert {*places, variables["CLAUDE_CONFIG_DIR"]} == set(volumes)
    assert str(Path(variables["PYKOCLAW_SOCKET"]).parent) in written


def test_compose_volumes_are_named_and_match_image() -> None:
    declared = re.findall(r"^  (\w+):$", compose().rpartition("\nvolumes:\n")[2], re.MULTILINE)
    mounted = dict(re.findall(r"^      - (\w+):(/\w+)", compose(), re.MULTILINE))
    assert set(mounted) == set(declared)
    (volumes,) = (re.findall(r'"(/\w+)"', rest) for name, rest in last_stage() if name == "VOLUME")
    assert set(mounted.values()) == set(volumes)
    for hardening in ("read_only: true", "cap_drop: [ALL]", "no-new-privileges:true"):
        assert hardening in compose()


def test_the_commands_are_the_programs() -> None:
    (entry,) = (rest for name, rest in last_stage() if name == "ENTRYPOINT")
    (command,) = (rest for name, rest in last_stage() if name == "CMD")
    assert re.findall(r'"([^"]+)"', entry) == ["pykoclaw-acp"]
    (served,) = re.findall(r'"([^"]+)"', command)
    (health,) = (rest for name, rest in last_stage() if name == "HEALTHCHECK")
    checked = re.findall(r'"([^"]+)"', health)[1]
    assert {served, checked} <= set(cli.commands)
