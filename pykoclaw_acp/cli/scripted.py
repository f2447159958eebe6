"""`pykoclaw-acp scripted-model`."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from pykoclaw_acp.errors import StartupError


class _Foreign(click.Command):
    """A command whose options another parser reads."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from pykoclaw_acp.scripted_model.options import parser

        _, options = parser(ctx.command_path)
        return [
            CompletionItem(name, help=option.help)
            for option in options
            for name in option.option_strings
            if name.startswith(incomplete or "--")
        ]


@click.command(
    name="scripted-model",
    cls=_Foreign,
    short_help="Run a local Messages API that plays scripts.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.pass_context
def scripted_model(ctx: click.Context) -> None:
    """Run a local Messages API that plays scripts, for use offline."""
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise StartupError(
            "The scripted model needs an HTTP server. Install it with: pip install 'pykoclaw-acp[scripted-model]'"
        )
    from pykoclaw_acp.scripted_model import __main__ as program

    ctx.exit(program.main(ctx.args, ctx.command_path))
