"""What a client asks of Claude when it opens a session: checked, then made the session's own."""

from __future__ import annotations

import msgspec

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model import choices as offers
from pykoclaw_acp.model.choices import Chosen, Config, Offer
from pykoclaw_acp.model.session_options import RequestedOptions, SessionOptions
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions import worker_options
from pykoclaw_acp.sessions.ports import OfferStore, SessionStore, Transcripts
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.wanted_choices import WantedChoice, otherwise, require


async def settle(
    store: OfferStore, template: WorkerOptions, record: SessionRecord, requested: RequestedOptions
) -> None:
    """Make what is asked for a new session its record's; raises InvalidParams for what Claude does
    not offer there. If it has not reported what it offers, or does not list the model, its worker
    takes back what there is not. `template`: options of a session without its own.
    """
    _check_sources(template, requested)
    record.options = requested.options.over(record.options)
    _require_may_bypass(record.options, requested)
    named = requested.given
    if not named.keys() & {"mode", "begins_in", "model", "effort", "fast"}:
        return
    options = worker_options.of(record, template, ())
    offer = await store.offer(record.cwd or "", worker_options.configuration(record, options))
    model = record.model or template.model or offers.DEFAULT_MODEL
    chosen = Chosen(worker_options.mode(record, template), model)
    if requested.model is not None:
        model, unchecked = _model(requested.model, offer, model)
        chosen = msgspec.structs.replace(chosen, model=model)
        record.model = model
        if unchecked:
            record.options = msgspec.structs.replace(record.options, unchecked_model=model)
            offer = None  # which says nothing of it
    if offer is None:
        offer = offers.presumed(chosen.model)
    may_bypass = worker_options.may_bypass(record.options, template)
    now = offers.selection(chosen, offer, bypass=may_bypass)
    if requested.mode is not None:
        require(named["mode"], requested.mode, now.modes, offer)
        record.mode = requested.mode
    elif requested.begins_in is not None:
        has = any(one.id == requested.begins_in for one in now.modes)
        record.mode = requested.begins_in if has else offers.FALLBACK_MODE
    values = {one.id: one for one in now.options or ()}
    for option, wanted in ((offers.EFFORT, requested.effort), (offers.FAST, requested.fast)):
        if wanted is None:
            continue
        if option not in values:
            if wanted in (offers.DEFAULT_EFFORT, offers.OFF):
                continue  # it is so
            raise InvalidParams(
                f"`{named[option]}`: {otherwise(offer, 'the model does not have it.')}"
            )
        require(named[option], wanted, values[option].choices, offer)
    effort = None if requested.effort == offers.DEFAULT_EFFORT else requested.effort
    record.config = Config(effort, requested.fast == offers.ON)


async def require_free(
    store: SessionStore, transcripts: Transcripts | None, requested: RequestedOptions
) -> str:
    """The id that the client has chosen for a new session; raises InvalidParams if it is taken.

    A Claude session of this id, begun in a terminal, say, would be continued by the new one.
    """
    assert requested.session_id is not None
    taken = await store.id_taken(requested.session_id)
    if taken or (transcripts is not None and await transcripts.exists(requested.session_id)):
        raise taken_id(requested)
    return requested.session_id


def taken_id(requested: RequestedOptions) -> InvalidParams:
    """The refusal of an id that is in use, or was."""
    return InvalidParams(
        f"`{requested.given['session_id']}`: a session has or had this id. Choose another one, or open"
        " that session with `session/load`."
    )


async def grant(session: Session, template: WorkerOptions, requested: RequestedOptions) -> None:
    """Make what is asked for a session that is opened again its own, and tell its clients.

    Raises InvalidParams for what Claude does not offer there, but for a model, and for another
    system prompt than that with which the conversation has begun.
    """
    if not requested.given:
        return
    _check_sources(template, requested)
    before = session.record.options
    options = requested.options.over(before)
    _require_may_bypass(options, requested)
    has_begun = session.record.prompted or session.record.claude_session_id is not None
    if has_begun and options.system_prompt != before.system_prompt:
        raise InvalidParams(
            f"`{requested.given['system_prompt']}`: the conversation has begun with another system prompt,"
            " which Claude keeps. Leave it out, or create a session."
        )
    named, changes = requested.given, list[WantedChoice]()
    if requested.model is not None:
        offer, chosen = await session.choosing.offer(), session.options.model
        model, unchecked = _model(requested.model, offer, chosen or offers.DEFAULT_MODEL)
        changes.append(WantedChoice(named["model"], model=model, unchecked=unchecked))
        if unchecked:
            options = msgspec.structs.replace(options, unchecked_model=model)
    if requested.mode is not None:
        changes.append(WantedChoice(named["mode"], mode=requested.mode))
    elif options.forbids_bypass and session.options.permission_mode == offers.BYPASS.id:
        changes.append(WantedChoice(named["forbids_bypass"], mode=offers.FALLBACK_MODE))
    for option, wanted in ((offers.EFFORT, requested.effort), (offers.FAST, requested.fast)):
        if wanted is not None:
            changes.append(WantedChoice(named[option], option=(option, wanted)))
    await session.choosing.choose_all(changes, options if options != before else None)


def _model(wanted: str, offer: Offer | None, current: str) -> tuple[str, bool]:
    """The id of the wanted model, which may be named as Claude itself names it, and whether the
    session's worker has to look whether there is one: Claude knows more than it lists.
    """
    found = offers.model(wanted, offer).id
    return found, found != current and not offers.lists(found, offer)


def _require_may_bypass(options: SessionOptions, requested: RequestedOptions) -> None:
    if options.forbids_bypass and requested.mode == offers.BYPASS.id:
        raise InvalidParams(
            f"`{requested.given['mode']}`: a client has forbidden this mode in the session"
            " (`disableBypassPermissionsMode`). Choose another one."
        )


def _check_sources(template: WorkerOptions, requested: RequestedOptions) -> None:
    wanted = requested.options.setting_sources or ()
    if more := [one for one in wanted if one not in template.setting_sources]:
        raise InvalidParams(
            f"`{requested.given['setting_sources']}`: {', '.join(more)} is not in effect here;"
            " PYKOCLAW_SETTING_SOURCES decides."
        )
