"""``[tool.tether]`` of the nearest pyproject.toml: what the command line takes, as defaults.

The table itself is for `run`, `report` and `view`; each command has its own table as well, such as
``[tool.tether.bench]``.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from tether.cli.exits import fail

Lookup = Callable[[str], click.Command | None]
"""Returns the command of a name, if there is one."""

_SHARED = ("run", "report", "view")
"""To these [tool.tether] itself applies; the first has all its settings."""


def configured(name: str, lookup: Lookup) -> dict[str, Any]:
    """Return the defaults of a command's parameters. A wrong setting ends with one line."""
    file = _nearest()
    table = _table(file) if file is not None else {}
    shared = {key: value for key, value in table.items() if lookup(key) is None}
    found: dict[str, Any] = {}
    if name in _SHARED and shared:
        taken = _checked(shared, lookup(_SHARED[0]), f"{file}: [tool.tether]")
        mine = {option.name for option in _options(lookup(name)).values()}
        found |= {key: value for key, value in taken.items() if key in mine}
    own = table.get(name, {})
    if not isinstance(own, dict):
        fail(f"{file}: [tool.tether.{name}] must be a table")
    return found | _checked(own, lookup(name), f"{file}: [tool.tether.{name}]")


def _nearest() -> Path | None:
    folder = Path.cwd()
    files = (one / "pyproject.toml" for one in (folder, *folder.parents))
    return next((file for file in files if file.is_file()), None)


def _table(file: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(file.read_text("utf-8")).get("tool", {}).get("tether", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        fail(f"cannot read {file}: {error}")
    return found if isinstance(found, dict) else fail(f"{file}: [tool.tether] must be a table")


def _options(command: click.Command | None) -> dict[str, click.Option]:
    """Return the options that can be set, by their names without the dashes."""
    return {
        name.removeprefix("--"): option
        for option in (command.params if command is not None else ())
        if isinstance(option, click.Option)
        for name in option.opts
        if name.startswith("--")
    }


def _checked(
    settings: Mapping[str, Any], command: click.Command | None, where: str
) -> dict[str, Any]:
    """Return the settings by the names of their parameters."""
    known = _options(command)
    found = {}
    for key, value in settings.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
            fail(f"{where} has no setting {key!r}: {hint}")
        wrong = _wrong(known[key], value)
        if wrong:
            fail(f"{where} {key}: {wrong}")
        found[known[key].name or key] = value
    return found


def _wrong(option: click.Option, value: Any) -> str:
    """Say what is wrong with the value of an option; "" where nothing is."""
    if option.is_flag:
        return "" if isinstance(value, bool) else f"must be true or false, not {value!r}"
    if option.multiple and not isinstance(value, list):
        return f"must be a list, not {value!r}"
    number = isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
    try:
        for one in value if option.multiple else [value]:
            if not isinstance(one, int | float if number else str) or isinstance(one, bool):
                return f"must be {'a number' if number else 'text'}, not {one!r}"
            option.type.convert(one, option, None)
    except click.BadParameter as error:
        return error.message.rstrip(".")
    return ""
