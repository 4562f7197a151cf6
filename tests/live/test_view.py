"""The recording in a terminal, driven as its user drives it: by keys."""

import asyncio
import sys

import pytest

import warm
from programs import record_program
from test_cli import CUT, tether
from test_cli_options import in_terminal

pytest.importorskip("textual", reason="textual is not installed")
from textual.widgets import Input, OptionList, Static, TabbedContent

from tether.cli.explorer import Explorer

PROGRAM = """\
import torch
model = torch.nn.Linear(3, 3)
extra = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([*model.parameters(), extra], lr=0.1)
losses = []
for _ in range(4):
    optimizer.zero_grad()
    loss = (model(torch.ones(2, 3)).detach() * extra).sum()
    loss.backward()
    optimizer.step()
    losses.append(loss)
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    made = record_program(PROGRAM, tmp_path_factory.mktemp("view"), "train.py")
    assert {"gradient-cut", "graph-retained"} <= {one.slug for one in made.findings}
    return made


def drive(recording, steps, size=(100, 30)):
    """Press keys, and look after each; a step is the keys and what is done then with the app."""

    async def work():
        app = Explorer(recording)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            for keys, look in steps:
                await pilot.press(*keys)
                await pilot.pause()
                await pilot.pause()
                look(app)

    asyncio.run(work())


def text(app, where):
    return str(app.query_one(where, Static).render())


def at(app):
    """Return which part is shown, and the line that the source is at."""
    return app.query_one(TabbedContent).active, app.query_one("#lines", OptionList).highlighted


def test_the_findings_are_told_as_the_report_tells_them(recording):
    def first(app):
        assert app.query_one("#list", OptionList).option_count == len(recording.findings)
        assert "2 warnings" in text(app, "#summary")
        assert recording.findings[0].slug in text(app, "#told")

    def second(app):
        told = text(app, "#told")
        assert recording.findings[1].slug in told
        assert recording.findings[0].slug not in told
        for one in recording.findings[1].message.split()[:5]:
            assert one in told

    drive(recording, [([], first), (["j"], second), (["k"], first), (["down"], second)])


def test_enter_goes_to_the_line_and_n_to_the_other_end(recording):
    number = next(n for n, one in enumerate(recording.findings) if one.slug == "gradient-cut")

    def line(wanted):
        return lambda app: check(at(app), ("source", wanted - 1))

    steps = [(["j"] * number, lambda _: None), (["enter"], line(8)), (["n"], line(9))]
    drive(recording, [*steps, (["n"], line(8)), (["escape", "s"], line(8))])


def check(found, wanted):
    assert found == wanted


def test_the_source_has_the_marks_of_the_page(recording):
    def look(app):
        shown = [str(one.prompt) for one in app.query_one("#lines", OptionList).options]
        assert len(shown) == len(PROGRAM.splitlines())
        assert "detach() * extra).sum()" in shown[7]
        assert "cut\u00d74" in shown[7]
        assert shown[4].split() == ["5", "losses", "=", "[]"]

    drive(recording, [(["s"], look)])


def test_why_of_a_line_of_a_finding_and_of_a_name(recording):
    def of_line(app):
        assert at(app)[0] == "why"
        assert app.query_one(Input).value == "train.py:8"
        assert text(app, "#because").startswith("train.py:8")

    def of_name(app):
        assert "It had no gradient whenever one was asked for" in text(app, "#because")

    def unknown(app):
        assert "no tensor is called 'modle.weight'" in text(app, "#because")
        assert "did you mean model.weight" in text(app, "#because")

    number = next(n for n, one in enumerate(recording.findings) if one.slug == "gradient-cut")
    steps = [(["j"] * number + ["enter", "enter"], of_line)]
    for name, look in (("model.weight", of_name), ("modle.weight", unknown)):
        steps.append((["escape", "slash"], lambda app: app.query_one(Input).clear()))
        steps.append(([*(one.replace(".", "full_stop") for one in name), "enter"], look))
    steps.append((["escape", "w"], lambda app: check(at(app)[0], "why")))
    drive(recording, steps)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_is_wider_than_its_place(recording, width):
    def look(app):
        place = app.query_one("#told", Static)
        widest = max(map(len, text(app, "#told").splitlines()))
        assert place.content_size.width >= widest or "..." in text(app, "#told")

    drive(recording, [([], look)], size=(width, 30))


def test_without_findings_the_source_is_open(tmp_path):
    recording = record_program("import torch\nx = torch.ones(3)\ny = x + 1\n", tmp_path)

    def look(app):
        assert at(app)[0] == "source"
        assert "nothing to report" in text(app, "#summary")

    drive(recording, [([], look), (["f", "n", "w", "escape", "s", "right_square_bracket"], look)])


# -- from the outside ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("view")
    (made / "train.py").write_text(CUT)
    assert tether("run", "-qo", "train.tether", "train.py", folder=made).returncode == 0
    return made


def test_it_opens_in_a_terminal_of_80_columns_and_q_ends_it(folder):
    typed = [("got no gradient in any of 2 steps", b"s"), ("opt.step()", b"q")]
    code, shown = in_terminal("view", "train.tether", folder=folder, typed=typed)
    assert code == 0
    assert "gradient-cut" in shown


def test_without_textual_there_is_a_line_that_says_what_to_install(folder):
    code = (
        "import sys; sys.modules['textual'] = None; sys.argv = ['tether', 'view', 'train.tether']\n"
        "from tether.cli.main import main\nmain()"
    )
    done = warm.fresh("-c", code, folder=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "tether: the terminal view needs textual, the extra 'view': pip install 'tether[view]'; "
        "--web shows the report in a browser\n"
    )
    assert sys.modules["textual"] is not None
