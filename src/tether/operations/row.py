"""What is known of an operation, to read: ``python -m tether.operations.row item __iadd__``.

The name is the recorder's: `python -m tether.store.listing` shows under which name a call is
recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields

from tether.operations.rows import SAME_AS
from tether.operations.table import operation


def lines(name: str) -> Iterator[str]:
    """Yield a line for each column of an operation's row that says something."""
    found = operation(name)
    same = f" (the same as {SAME_AS[name]})" if name in SAME_AS else ""
    yield f"{name}{same}" if found.known else f"{name}: nothing is known of it"
    for column in fields(found)[2:]:
        value = getattr(found, column.name)
        if value != column.default:
            yield f"  {column.name} = {value!r}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for name in sys.argv[1:] for line in lines(name))
