"""What a client is told that has no credential, or cannot give it up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pykoclaw_acp.errors import AuthRequired, InternalError
from pykoclaw_acp.link import logins
from pykoclaw_acp.model.session_environment import ClientEnvironment, DaemonEnvironment
from pykoclaw_acp.protocol.messages import AuthenticateParams
from pykoclaw_acp.protocol.wire import Params
from pykoclaw_acp.server import authenticating
from pykoclaw_acp.system import environment


@pytest.mark.parametrize(
    ("ours", "clients", "option"),
    [
        ("", None, ""),
        ("", "work", " --account work"),
        ("", "default", " --account default"),
        ("work", None, " --account work"),
        ("work", "default", " --account default"),
    ],
)
async def test_commands_are_for_the_clients_account(
    ours: str, clients: str | None, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in environment.KEYS | environment.SWITCHES | {"CREDENTIALS_DIRECTORY"}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "work"))
    (tmp_path / "work").mkdir()
    daemon = DaemonEnvironment(ours, str(tmp_path), cli_path="/bin/false")
    given = None
    if clients is not None:
        given = ClientEnvironment.of({"PYKOCLAW_ACCOUNT": clients})
    sessions = SimpleNamespace(daemon_environment=daemon)
    call: Any = SimpleNamespace(client=SimpleNamespace(given=given), sessions=sessions)
    with pytest.raises(AuthRequired) as missing:
        await authenticating.authenticate(call, AuthenticateParams(method_id=logins.KEY))
    assert f"`pykoclaw-acp login{option}`" in missing.value.message
    (tmp_path / "work/.credentials.json").write_text('{"claudeAiOauth": {}}')
    with pytest.raises(InternalError) as kept:
        await authenticating.logout(call, Params())
    assert f"`pykoclaw-acp logout{option}`" in kept.value.message
