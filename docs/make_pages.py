# ruff: noqa: INP001  (a script, not part of a package)
"""Writes the pages that follow from the code: one for each verdict, their list, and the commands.

`python docs/make_pages.py`, or `make docs`; tests/meta/test_pages.py keeps them fresh.
"""

import re
from pathlib import Path

import click

from tether.cli.main import COMMANDS, main
from tether.verdicts import VERDICTS

DOCS = Path(__file__).parent
NOTE = "<!-- Generated from {} by `make docs`. Do not edit. -->\n\n"


def verdict_page(verdict):
    """Return the page of a verdict, with a program that shows it: one that the tests run."""
    note = NOTE.format(f"src/tether/verdicts/{verdict.slug.replace('-', '_')}")
    shown = next((one for one in verdict.examples if one.expected), None)
    program = ""
    if shown is not None:
        lines = ", ".join(f"line {one.line} (`{one.subject}`)" for one in shown.expected)
        program = (
            f"\n## A whole program\nThe finding is at {lines}.\n"
            f"```python\n{shown.program.strip()}\n```\n"
        )
    return f"{note}{verdict.page.strip()}\n{program}"


def commands_page():
    """Return each command: its usage, what it says of itself, its options."""
    root = click.Context(main)
    parts = [NOTE.format("src/tether/cli"), "# Commands\n"]
    for name in COMMANDS:
        command = main.get_command(root, name)
        arguments = [one for one in command.params if isinstance(one, click.Argument)]
        options = [one for one in command.params if isinstance(one, click.Option)]
        usage = " ".join(one.metavar or choices(one) or bracketed(one) for one in arguments)
        parts.append(f"\n## tether {name}\n\n```text\ntether {name} [OPTIONS] {usage}\n```\n\n")
        parts += [f"{paragraph(text)}\n\n" for text in command.help.split("\n\n")]
        parts += [f"- {option_line(one)}\n" for one in options]
    return "".join(parts)


def bracketed(argument):
    """Return the name of an argument as a usage line has it."""
    name = argument.name.upper()
    return name if argument.required else f"[{name}]"


def choices(parameter):
    """Return what a parameter can be, where that is a list of words."""
    found = getattr(parameter.type, "choices", ())
    return "|".join(str(one) for one in found)


def paragraph(text):
    """Return a paragraph of a help text; one that is to keep its lines as they are is code."""
    if text.startswith("\b"):
        return f"```text\n{text.removeprefix(chr(8)).strip()}\n```"
    return " ".join(text.split())


def option_line(option):
    """Return an option, what it takes and what it does."""
    takes = "" if option.is_flag else " " + (option.metavar or choices(option) or "VALUE")
    default = f" Default: {option.default}." if option.show_default else ""
    names = ", ".join([*option.opts, *option.secondary_opts])
    return f"`{names}{takes}` {option.help or ''}{default}".rstrip()


def pages():
    """Return the text of every page, by its path below `docs`."""
    rows = "".join(
        f"| [{one.slug}]({one.slug}.md) | {one.severity} | {one.summary} |\n" for one in VERDICTS
    )
    head = "# Verdicts\n\n| slug | gravest | says |\n|---|---|---|\n"
    return {
        "verdicts/README.md": NOTE.format("src/tether/verdicts/*.py") + head + rows,
        **{f"verdicts/{one.slug}.md": verdict_page(one) for one in VERDICTS},
        "reference/commands.md": commands_page(),
    }


def navigation(text):
    """Return the settings of the site with a line for each verdict below the list of all."""
    lines = "".join(f"      - verdicts/{one.slug}.md\n" for one in VERDICTS)
    listed = r"(      - All verdicts: .*\n)(?:      - verdicts/.*\n)*"
    return re.sub(listed, lambda found: found[1] + lines, text)


def write():
    """Write the pages and the site's list of them; remove those whose verdict is gone."""
    wanted = pages()
    site = DOCS.parent / "mkdocs.yml"
    site.write_text(navigation(site.read_text("utf-8")), "utf-8")
    for old in (DOCS / "verdicts").glob("*.md"):
        if f"verdicts/{old.name}" not in wanted:
            old.unlink()
    for name, text in wanted.items():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
