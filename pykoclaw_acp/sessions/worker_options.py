"""What the workers of a session are launched with: the settings' options, and what is its own."""

from __future__ import annotations

from msgspec.structs import replace

from pykoclaw_acp.channel.options import McpServer, WorkerOptions
from pykoclaw_acp.model import former_mode
from pykoclaw_acp.model.choices import BYPASS, DEFAULT_MODEL, FALLBACK_MODE, Configuration
from pykoclaw_acp.model.events import ConfigChanged, ModeChanged
from pykoclaw_acp.model.session_options import SessionOptions
from pykoclaw_acp.model.turns import SessionRecord


def of(
    record: SessionRecord, template: WorkerOptions, servers: tuple[McpServer, ...]
) -> WorkerOptions:
    """Options of the session's next worker. `template`: those of a session without its own."""
    return replace(
        template,
        conversation=record.works_for or record.conversation_name,
        cwd=record.cwd or "",
        additional_directories=record.additional_directories,
        mcp_servers=servers,
        model=record.model or template.model,
        permission_mode=mode(record, template),
        bypass=may_bypass(record.options, template),
        config=record.config,
        asked=record.options,
        setting_sources=_sources(record.options, template),
    )


def opened(
    options: WorkerOptions,
    record: SessionRecord,
    template: WorkerOptions,
    servers: tuple[McpServer, ...],
) -> WorkerOptions:
    """These options with what a client has opened the session with."""
    made = replace(
        options,
        cwd=record.cwd or "",
        additional_directories=record.additional_directories,
        mcp_servers=servers,
        bypass=may_bypass(record.options, template),
        asked=record.options,
        setting_sources=_sources(record.options, template),
    )
    return narrowed(made, record.options)


def configuration(record: SessionRecord, options: WorkerOptions) -> Configuration:
    """What decides about that which Claude offers to the session's workers, with these options."""
    environment = record.environment
    return Configuration(
        environment.account,
        tuple(sorted(options.setting_sources)),
        options.cli_path,
        environment.service,
    )


def mode(record: SessionRecord, template: WorkerOptions) -> str:
    """The permission mode of the session, as far as it may have that."""
    return allowed(record.mode or template.permission_mode, record.options)


def allowed(mode: str, asked: SessionOptions) -> str:
    """The mode, or what holds instead in a session with these options."""
    return FALLBACK_MODE if mode == BYPASS.id and asked.forbids_bypass else mode


def narrowed(options: WorkerOptions, asked: SessionOptions) -> WorkerOptions:
    """These options, without a mode that is forbidden in a session that has `asked` for this."""
    mode, former = options.permission_mode, options.before_plan
    return replace(
        options, permission_mode=allowed(mode, asked), before_plan=allowed(former, asked)
    )


def may_bypass(asked: SessionOptions, template: WorkerOptions) -> bool:
    """Whether the mode bypassPermissions may be chosen in a session with these options."""
    return template.bypass and not asked.forbids_bypass


def followed(options: WorkerOptions, change: ModeChanged | ConfigChanged) -> WorkerOptions:
    """These options after a change that was reported, as it was."""
    if isinstance(change, ModeChanged):
        former = former_mode.followed(options.before_plan, options.permission_mode, change.mode)
        return replace(options, permission_mode=change.mode, before_plan=former)
    chosen = change.selection
    if options.model is not None or chosen.model != DEFAULT_MODEL:
        options = replace(options, model=chosen.model)
    return options if chosen.config is None else replace(options, config=chosen.config)


def _sources(asked: SessionOptions, template: WorkerOptions) -> tuple[str, ...]:
    """Claude's setting sources: the client may leave some out."""
    wanted = asked.setting_sources
    return template.setting_sources if wanted is None else wanted
