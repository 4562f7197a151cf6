"""What the program calls a tensor, taken apart: ``model.layers[0].weight``, ``best['b.weight']``.

A key stays whole, whatever stands in it: a dot within quotes parts nothing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

_STEP = re.compile(
    r"\[(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\]]*)\]"  # a key, in quotes or not
    r"|\.?[^.\[]+"  # a variable or an attribute
    r"|[.\[]"  # what is no name, so that nothing is lost
)


def steps_in(name: str) -> list[str]:
    """Return the steps of a name: ``best``, ``['b.weight']``; ``net``, ``.0``, ``.weight``."""
    return _STEP.findall(name)


def root_of(name: str) -> str:
    """Return the variable that a name begins with."""
    return steps_in(name)[0] if name else ""


def container_of(name: str) -> str:
    """Return the name of what a place lies in: ``net.0`` of ``net.0.weight``; "" for a variable."""
    return "".join(steps_in(name)[:-1])


def paths_to(name: str) -> list[str]:
    """Return the paths from the variable to a name: ``net``, ``net.0``, ``net.0.weight``."""
    steps = steps_in(name)
    return ["".join(steps[: count + 1]) for count in range(len(steps))]


def last_word(name: str) -> str:
    """Return the variable or attribute that a name ends with, whatever index it has."""
    steps = [one for one in steps_in(name) if not one.startswith("[")]
    return steps[-1].lstrip(".") if steps else ""


def common_place(names: Sequence[str]) -> str:
    """Return the path that all names lie in: ``best`` of ``best['w']``, ``best['b']``; or ""."""
    same = itertools.takewhile(
        lambda steps: len(set(steps)) == 1, zip(*map(steps_in, names), strict=False)
    )
    return "".join(steps[0] for steps in same)


def joint_name(names: Sequence[str]) -> str:
    """Return what several things lie in, by one name; the first one's, where that is nothing."""
    return common_place(names) or names[0]
