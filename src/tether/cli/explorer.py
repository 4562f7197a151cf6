"""A recording in the terminal: its findings, the source with what happened on it, why of a name.

It shows the blocks of the text report and the marks of the page; nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar

from rich.syntax import Syntax
from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.containers import Container, VerticalScroll
from textual.suggester import SuggestFromList
from textual.widgets import Footer, Input, OptionList, Static, TabbedContent, TabPane
from textual.widgets.option_list import Option

from tether.facts import Site
from tether.finding import Finding
from tether.report.document.blocks import Block, Document, FindingBlock, Paragraph, Phrase
from tether.report.document.compose import group_block, summary
from tether.report.document.findings import Findings
from tether.report.document.grouping import Alike, ends, grouped
from tether.report.document.text import SEVERITY_STYLES, lines, visible
from tether.report.filters import shown_line
from tether.report.recording import Recording
from tether.report.tables.annotated import KINDS, File, LineMarks, annotated, mark_label
from tether.source.syntax import source_of

LONGEST_LINE = 500
"""Characters of a source line that are shown."""

_BAR = "\u258c"
_ASK = "a name or a line: model.layer1.weight, train.py:14"


class Explorer(App[None]):
    """A list of findings, and beside it the chosen one, the source, or the why of a name."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012 -- as it is declared
    CSS = """
    #summary { height: auto; padding: 0 1; }
    #parts { height: 1fr; }
    .-wide #parts { layout: horizontal; }
    #list { height: 30%; min-height: 4; border: none; }
    .-wide #list { width: 40; height: 1fr; border-right: solid $panel; }
    TabbedContent { height: 1fr; width: 1fr; }
    TabPane { padding: 0 1; }
    #lines { height: 1fr; border: none; padding: 0; }
    #file { color: $text-accent; }
    VerticalScroll { scrollbar-gutter: stable; scrollbar-size-vertical: 1; }
    Input { border: none; height: 1; background: $surface; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = [
        Binding("j", "go(1)", show=False),
        Binding("k", "go(-1)", show=False),
        ("f", "show('finding')", "finding"),
        ("s", "source", "source"),
        ("n", "end", "next end"),
        ("right_square_bracket", "file(1)", "next file"),
        Binding("left_square_bracket", "file(-1)", show=False),
        ("w", "why", "why"),
        ("slash", "ask", "ask"),
        ("escape", "leave", "list"),
        ("q", "quit", "quit"),
    ]

    def __init__(self, recording: Recording) -> None:
        super().__init__(ansi_color=True)
        self.recording = recording
        self.about: Findings = recording.about
        self.groups: list[Alike] = grouped(list(enumerate(self.about.findings, 1)))
        self.files: list[File] = annotated(self.about)
        self.file = -1
        self.end = 0
        self.asked: list[Block] = []

    # -- the parts -------------------------------------------------------------------------------

    def compose(self) -> Iterator[Any]:
        """Yield the widgets."""
        yield Static(id="summary")
        names = dict.fromkeys(fact.name for fact in self.about.trace.names)
        with Container(id="parts"):
            yield OptionList(*map(self._item, self.groups), id="list")
            with TabbedContent(initial="finding"):
                with TabPane("finding", id="finding"), VerticalScroll():
                    yield Static(id="told")
                with TabPane("source", id="source"):
                    yield Static(id="file")
                    yield OptionList(id="lines")
                with TabPane("why", id="why"):
                    suggester = SuggestFromList(names, case_sensitive=True)
                    yield Input(placeholder=_ASK, id="name", suggester=suggester)
                    with VerticalScroll():
                        yield Static(id="because")
        yield Footer()

    def on_mount(self) -> None:
        """Choose the first finding, or where there is none show the source."""
        self.title = " ".join(self.about.trace.program) or "recording"
        self._open(0)
        if self.groups:
            self._list.focus()
        else:
            self.action_source()

    def on_resize(self) -> None:
        """Break the lines anew."""
        self.call_after_refresh(self._say)

    def _item(self, group: Alike) -> Option:
        number, *others = group.numbers
        finding = self.about.findings[number - 1]
        text = Text(f"#{number} ", no_wrap=True, overflow="ellipsis")
        text.append(finding.slug, SEVERITY_STYLES[finding.severity])
        text.append(f" {visible(finding.subject)}", "bold")
        more = f", and {len(others)} more like it" if others else ""
        return Option(text.append(f"\n   {self._place(finding.site)}{more}", "dim"))

    def _place(self, site: Site) -> str:
        return shown_line(site.file, site.line, self.about.trace.folder)

    @property
    def _list(self) -> OptionList:
        return self.query_one("#list", OptionList)

    @property
    def _lines(self) -> OptionList:
        return self.query_one("#lines", OptionList)

    # -- what is shown ---------------------------------------------------------------------------

    @property
    def chosen(self) -> Finding | None:
        """The finding that the list is at."""
        at = self._list.highlighted
        return self.about.findings[self.groups[at].numbers[0] - 1] if at is not None else None

    @property
    def block(self) -> FindingBlock | None:
        """The same, as reports show it."""
        at = self._list.highlighted
        return group_block(self.groups[at], self.about) if at is not None else None

    def _say(self) -> None:
        """Write the texts, as wide as there is room."""
        self._write("#summary", summary(self.about))
        self._write("#told", [self.block] if self.block else [])
        self._write("#because", self.asked)

    def _write(self, where: str, blocks: list[Block]) -> None:
        widget = self.query_one(where, Static)
        width = widget.content_size.width or self.size.width - 4
        widget.update(Text("\n").join(lines(Document("", blocks), max(40, width))))

    def on_option_list_option_highlighted(self, event: Any) -> None:
        """Tell of the finding that the list has come to."""
        if event.option_list.id == "list":
            self.end = 0
            self._say()

    def on_option_list_option_selected(self, event: Any) -> None:
        """Go from a finding to its line, and from a line to what happened to its tensors."""
        if event.option_list.id == "list":
            self.action_source()
        else:
            self.action_why()

    # -- source ----------------------------------------------------------------------------------

    def _open(self, number: int) -> None:
        """Show a file."""
        if number == self.file or not self.files:
            return
        self.file = number
        file = self.files[number]
        here = f"{file.shown}   file {number + 1} of {len(self.files)}"
        self.query_one("#file", Static).update(Text(here))
        box = self._lines
        box.clear_options()
        box.add_options(_line(at, text, file) for at, text in enumerate(_coloured(file), 1))

    def _go_to(self, site: Site) -> None:
        numbers = [n for n, one in enumerate(self.files) if one.path == site.file]
        if numbers:
            self._open(numbers[0])
            box = self._lines
            box.highlighted = min(site.line, box.option_count) - 1

    # -- keys ------------------------------------------------------------------------------------

    def action_show(self, part: str) -> None:
        """Show one of the three parts."""
        self.query_one(TabbedContent).active = part
        (self._lines if part == "source" else self._list).focus()

    def action_source(self) -> None:
        """Show the line of the finding."""
        if self.chosen is not None:
            self._go_to(ends(self.chosen)[0][self.end].site)
        self.action_show("source")

    def action_end(self) -> None:
        """Go to the finding's other end."""
        if self.chosen is not None:
            self.end = (self.end + 1) % len(ends(self.chosen)[0])
            self.action_source()

    def action_file(self, by: int) -> None:
        """Show the next file."""
        if self.files:
            self._open((self.file + by) % len(self.files))
            self.action_show("source")

    def action_go(self, by: int) -> None:
        """Move by a line, in the list or in the source."""
        box = self._lines if self._lines.has_focus else self._list
        (box.action_cursor_down if by > 0 else box.action_cursor_up)()

    def action_why(self) -> None:
        """Ask about what the cursor is at: a line of the source, or the name of a finding."""
        box = self._lines
        if box.has_focus and box.highlighted is not None:
            self._ask(self._place(Site(self.files[self.file].path, box.highlighted + 1)))
        elif self.chosen is not None:
            self._ask(self.chosen.subject)
        else:
            self.action_ask()

    def action_ask(self) -> None:
        """Let a name be typed."""
        self.query_one(TabbedContent).active = "why"
        self.query_one(Input).focus()

    def action_leave(self) -> None:
        """Go back to the list."""
        self.action_show("finding")

    def on_input_submitted(self, event: Any) -> None:
        """Answer the question that was typed."""
        self._ask(event.value.strip())

    def _ask(self, name: str) -> None:
        """Say why of a name, or that there is none."""
        self.query_one(Input).value = name
        try:
            self.asked = list(self.recording.why(name).document.blocks)
        except LookupError as error:
            self.asked = [_sentence(str(error.args[0]))]
        self.query_one(TabbedContent).active = "why"
        self.call_after_refresh(self._say)


def _sentence(text: str) -> Block:
    return Paragraph((Phrase(text, "warning"),))


@lru_cache(maxsize=8)
def _lexed(path: str, text: str) -> list[Text]:
    """Return the lines of a file, in colours."""
    shown = [visible(one)[:LONGEST_LINE] for one in source_of(path, text).lines]
    made = Syntax("", "python", theme="ansi_dark").highlight("\n".join(shown))
    return list(made.split("\n", allow_blank=True))


def _coloured(file: File) -> list[Text]:
    found = _lexed(file.path, file.text)[:]
    while found and not found[-1].plain.strip():
        found.pop()
    return found


def _line(number: int, code: Text, file: File) -> Option:
    """Return a line with what happened on it; colour is only on what a finding speaks of."""
    marks = file.lines.get(number) or LineMarks()
    made = Text(no_wrap=True, overflow="ellipsis")
    tone = SEVERITY_STYLES[marks.severity] if marks.severity else "dim"
    made.append(f"{_BAR if marks.severity else ' '}{number:>4} ", tone)
    made.append_text(code).append("  ")
    for kind in KINDS:
        if kind in marks.marks:
            style = SEVERITY_STYLES[marks.told[kind]] if kind in marks.told else "dim"
            made.append(f" {mark_label(marks.marks[kind])}", style)
    return Option(made)
