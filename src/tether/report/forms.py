"""The forms of the report that go to others: one list, for the options, the files and the tests.

Each is made by a method of `Recording` of the same name, which takes `source` and gives a text
without the program's own where that is off.
"""

from __future__ import annotations

from typing import NamedTuple


class Form(NamedTuple):
    """One form of the report, and its option of `run` and `report`."""

    name: str  # of the option, and of the method of `Recording`
    says: str  # of its option
    printed: bool = True  # --output-format offers it as well

    @property
    def option(self) -> str:
        """The name in Python of the option that takes the file."""
        return f"{self.name}_file"


FORMS = (
    Form("html", "Write one HTML page.", printed=False),
    Form("json", "Write JSON; - is stdout."),
    Form("sarif", "Write SARIF; - is stdout."),
)
PRINTED = tuple(one.name for one in FORMS if one.printed)
