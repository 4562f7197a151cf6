"""Commands that run a program: their own options first, everything after it is the program's."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tether.cli.exits import fail

if TYPE_CHECKING:
    from tether.record.running import Program

_ENDS = ("module", "code")  # the options after whose value the program's arguments begin


class ProgramCommand(click.Command):
    """A command whose options end at SCRIPT, ``-m MODULE`` or ``-c CODE``, as Python's do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command's own options, and hand over the rest as it is."""
        own, rest = self._parted(args)
        return super().parse_args(ctx, [*own, "--", *rest] if rest else own)

    def _parted(self, args: list[str]) -> tuple[list[str], list[str]]:
        """Return the command's own arguments, and the program with its own."""
        place = 0
        while place < len(args):
            word = args[place]
            if word == "--":
                return args[:place], args[place + 1 :]
            if word == "-" or not word.startswith("-"):
                break
            option, glued = self._last_option(word)
            takes = option is not None and not option.is_flag and not option.count
            place += 2 if takes and not glued else 1
            if option is not None and option.name in _ENDS:
                break
        return args[:place], args[place:]

    def _last_option(self, word: str) -> tuple[click.Option | None, bool]:
        """Return the option that a word ends in, and whether its value is in the word as well."""
        known = {name: one for one in self._options() for name in (*one.opts, *one.secondary_opts)}
        if word.startswith("--"):
            name, equals, _ = word.partition("=")
            return known.get(name), bool(equals)
        for at, letter in enumerate(word[1:], 2):
            option = known.get(f"-{letter}")
            if option is None or not option.is_flag:
                return option, bool(word[at:])
        return option, False

    def _options(self) -> Iterator[click.Option]:
        return (one for one in self.params if isinstance(one, click.Option))


def program_options(
    usage: str = "SCRIPT [ARGS]...",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what adds the options and arguments that say which program is run."""
    options = (
        click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar=usage),
        click.option("-c", "code", metavar="CODE", help="Run a string of code, as python -c does."),
        click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does."),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in options:
            command = option(command)
        return command

    return add


def program_of(module: str | None, code: str | None, arguments: tuple[str, ...]) -> Program:
    """Return the program that the options ask for, or end with one line."""
    try:
        from tether.record.running import CannotRunError, Program
    except ImportError as error:
        fail(f"PyTorch cannot be imported: {error}. Install it: pip install torch")
    try:
        return Program.of(module, code, arguments)
    except CannotRunError as error:
        fail(str(error))


def passed_on(program: Program, command: click.Command, sources: Mapping[str, str]) -> str:
    """Say that the program was given an option that it does not know and the command does.

    What a program knows stands in its text; "" where there is no such option.
    """
    known = {name for one in command.params for name in one.opts if name.startswith("--")}
    text = "\n".join([*sources.values(), _text(program)])
    for word in program.arguments:
        name = word.partition("=")[0]
        if name in known and not re.search(re.sub("[-_]", "[-_]", name[2:]), text):
            return f"{name} was passed to {program.target}: put tether's options before it"
    return ""


def _text(program: Program) -> str:
    """Return the text of the program itself, of which no call may have been recorded."""
    if program.kind == "code":
        return program.target
    with contextlib.suppress(OSError):
        return Path(program.target).read_text("utf-8", "replace")
    return ""
