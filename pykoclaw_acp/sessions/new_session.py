"""What a client's environment says about a session that it creates."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.errors import InternalError, InvalidParams
from pykoclaw_acp.model import choices
from pykoclaw_acp.model import session_environment as rules
from pykoclaw_acp.model.session_environment import (
    ClientEnvironment,
    DaemonEnvironment,
    StoredEnvironment,
)
from pykoclaw_acp.model.session_options import SessionOptions
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions import user_settings
from pykoclaw_acp.sessions.user_settings import UserSettings
from pykoclaw_acp.system import disks
from pykoclaw_acp.system import environment as names

ACCOUNT: Final = "pykoclaw.dev/account"


@dataclass(frozen=True, slots=True)
class SessionBeginning:
    """What a new session begins with; None: the setting's."""

    model: str | None = None
    mode: str | None = None
    environment: StoredEnvironment = field(default_factory=StoredEnvironment)
    options: SessionOptions = field(default_factory=SessionOptions)
    works_for: str | None = None  # as in SessionRecord

    def record(
        self, cwd: str, directories: tuple[str, ...], request_key: str | None, client: str | None
    ) -> SessionRecord:
        """The row of such a session, without its id and name."""
        return SessionRecord(
            session_id="",
            conversation_name="",
            cwd=cwd,
            additional_directories=directories,
            model=self.model,
            mode=self.mode,
            environment=self.environment,
            options=self.options,
            works_for=self.works_for,
            request_key=request_key,
            client=client,
        )


class Beginnings:
    """Begins sessions: by the client's environment, else by the settings, of which `template` is
    made, else by the user's Claude settings.
    """

    def __init__(self, daemon_environment: DaemonEnvironment, template: WorkerOptions) -> None:
        self._daemon_environment = daemon_environment
        self._template = template

    async def begin(
        self, given: ClientEnvironment | None, account: str | None = None
    ) -> SessionBeginning:
        """Return how a session begins whose client gives this, and asks for this account in `_meta`.

        Raises InvalidParams.
        """
        place = f"`_meta.{ACCOUNT}`"
        if account is None and given is not None and given.account is not None:
            account, place = given.account, f"{names.ACCOUNT} in the client's environment"
        chosen = self._daemon_environment.account if account is None else account
        await _require_account(self._daemon_environment, chosen, place)
        begun = rules.begin(self._daemon_environment, chosen, given)
        asked = given or ClientEnvironment()
        self._require_mode(asked.mode)
        user = await self._of_user(chosen)
        model = asked.model or self._template.model or user.model
        return SessionBeginning(model, asked.mode or user.mode, begun)

    def beside(self, conversation: str, record: SessionRecord | None) -> SessionBeginning:
        """Return how a session begins that works for another conversation: with the account, the
        environment, the mode and the options of its session, if it has one, as it may do no more.
        """
        begun = SessionBeginning(self._template.model, works_for=conversation)
        if record is None:
            return begun
        return replace(
            begun, mode=record.mode, environment=record.environment, options=record.options
        )

    async def _of_user(self, account: str) -> UserSettings:
        """What the user's Claude settings say, as far as it counts."""
        directory = (
            self._daemon_environment.configuration(account) or self._daemon_environment.claudes
        )
        if not directory or "user" not in self._template.setting_sources:
            return UserSettings()
        try:
            found = await disks.call(directory, partial(user_settings.read, directory))
        except TimeoutError as error:
            raise InternalError(
                f"Claude's settings in {directory} cannot be read: {disks.SILENT}."
            ) from error
        counts = found.mode in self._modes() and not self._daemon_environment.mode_is_set
        return found if counts else replace(found, mode=None)

    def _modes(self) -> list[str]:
        bypass = [choices.BYPASS] if self._template.bypass else []
        return [one.id for one in (*choices.MODES, *bypass)]

    def _require_mode(self, mode: str | None) -> None:
        known = self._modes()
        if mode is not None and mode not in known:
            raise InvalidParams(
                f"{names.MODE} in the client's environment: must be one of {', '.join(known)}.",
                {"allowed": known},
            )


async def _require_account(daemon_environment: DaemonEnvironment, account: str, place: str) -> None:
    """Raises InvalidParams, which names `place`, unless there is this account."""
    directory = daemon_environment.configuration(account)
    if directory is None:
        return
    if not rules.is_account(account):
        raise InvalidParams(f"{place}: {rules.ACCOUNT_RULE}.")
    if not await asyncio.to_thread(os.path.isdir, directory):
        raise InvalidParams(
            f"{place}: there is no account {account}. `pykoclaw-acp login --account {account}` makes it."
        )


def require_same(session_account: str, asked: str | None) -> None:
    """Raises InvalidParams if a session of one account is asked for under another."""
    if asked is not None and asked != session_account:
        shown = rules.shown(session_account)
        raise InvalidParams(
            f"`_meta.{ACCOUNT}`: the session belongs to the account {shown}, where Claude keeps what it remembers"
            " of it, so the account cannot be changed. Open it without this, or start a new session.",
            {"account": shown},
        )
