"""The command line: options in, one call, text out. A file for each command.

Everything after the program belongs to the program, and its stdout is its own: reports go to
stderr or to the files asked for. Bad input gives one line that says what and what to do, exit 2.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import click

import tether
from tether.cli.exits import EXIT_USAGE
from tether.cli.settings import configured

COMMANDS = (
    "run", "report", "view", "why", "diff", "memory", "bench", "rulebook", "explain", "completion",
)  # fmt: skip


class _Commands(click.Group):
    """Loads a command's module when the command is used: starting up stays quick."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"tether.cli.{name}")
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is called; one that there is not is said to be none."""
        typed = args[0]
        if typed not in COMMANDS and not typed.startswith("-") and not context.resilient_parsing:
            context.fail(f"there is no command {typed}{_near(typed, COMMANDS)}")
        return super().resolve_command(context, args)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; a wrong option or argument is one line and exit 2."""
        standalone = kwargs.pop("standalone_mode", True)
        kwargs["standalone_mode"] = False
        if not standalone:
            return super().main(*args, **kwargs)
        try:
            status = super().main(*args, **kwargs)
        except click.ClickException as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # from click 8.2 on
                click.echo(error.format_message())
                sys.exit(EXIT_USAGE)
            click.echo(f"tether: {_in_words(error)}", err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            sys.exit(130)
        sys.exit(status if isinstance(status, int) else 0)


def _in_words(error: click.ClickException) -> str:
    """Return what is wrong with a command line, what may have been meant, and where help is."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "tether"
    message = " ".join(error.format_message().split()).removesuffix(".")
    if isinstance(error, click.NoSuchOption) and context is not None:
        options = (one for one in context.command.params if isinstance(one, click.Option))
        known = [name for one in options for name in one.opts]
        message = f"there is no option {error.option_name}{_near(error.option_name, known)}"
    return f"{message} ({command} --help tells more)"


def _near(typed: str, known: Sequence[str]) -> str:
    found = difflib.get_close_matches(typed, known, n=1)
    return f": did you mean {found[0]}?" if found else ""


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tether.__version__, prog_name="tether")
@click.pass_context
def main(context: click.Context) -> None:
    """Find lost gradients, unexpected shared memory and needless copies in PyTorch programs."""
    name = context.invoked_subcommand
    if name is not None:
        lookup = partial(context.command.get_command, context)  # type: ignore[attr-defined]
        context.default_map = {name: configured(name, lookup)}
