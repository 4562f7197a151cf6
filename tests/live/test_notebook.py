"""The report in a notebook, in a kernel of its own as Jupyter runs it."""

import html
import re
import sys

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

CELLS = {
    "set up": """\
import torch, tether
from torch import nn
model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 1))
def features(x):
    return model[0](x).detach()
""",
    "with": """\
with tether.record() as r:
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        opt.zero_grad()
        model[1](features(torch.ones(2, 3))).sum().backward()
        opt.step()
""",
    "shown": "r",
    "load": "%load_ext tether",
    "magic": """\
%%tether again --limit 1000
opt.zero_grad()
loss = model[1](features(torch.ones(2, 3))).sum()
loss.backward()
opt.step()
loss.item()
""",
    "asked": "print(again.findings[0].subject, again.findings[0].site.file)",
    "kept": """\
with tether.record() as kept:
    losses = []
    for _ in range(4):
        opt.zero_grad()
        loss = model(torch.ones(2, 3)).sum()
        loss.backward()
        opt.step()
        losses.append(loss)
""",
    "names": "print(sorted({one.name.partition('[')[0] for one in kept.trace.names}))",
    "running": "with tether.record() as q: print(q._repr_mimebundle_())",
}


def run(*sources, allow_errors=False):
    """Run cells in a kernel and return them."""
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    client = nbclient.NotebookClient(book, timeout=240, allow_errors=allow_errors)
    client.km = client.create_kernel_manager()
    client.km.kernel_spec.argv = [
        sys.executable,
        "-m",
        "ipykernel_launcher",
        "-f",
        "{connection_file}",
    ]
    client.execute()
    return book.cells


@pytest.fixture(scope="module")
def outputs():
    """What each cell of `CELLS` put out, by its name."""
    return dict(zip(CELLS, (cell.outputs for cell in run(*CELLS.values())), strict=True))


def test_a_recording_shows_the_report_as_text_and_as_the_page(outputs):
    (shown,) = outputs["shown"]
    text, page = shown.data["text/plain"], shown.data["text/html"]
    assert re.search(r"#1 warning +gradient-cut +model\.0\.weight", text)
    assert "cell 1, line 5 in features" in text
    assert "return model[0](x).detach()" in text
    assert "ipykernel" not in text
    (inside,) = re.findall(r'srcdoc="([^"]*)"', page)
    assert "cell 1, line 5" in html.unescape(inside)
    assert html.unescape(inside).startswith("<!doctype html>")
    assert "<script" not in page.replace(inside, ""), "scripts run in the frame alone"
    assert len(page) < 300_000


def test_the_magic_records_its_cell_and_counts_lines_as_a_reader_does(outputs):
    kinds = [one.output_type for one in outputs["magic"]]
    assert kinds == ["execute_result", "display_data"]
    assert outputs["magic"][0].data["text/plain"].isascii()
    text = outputs["magic"][1].data["text/plain"]
    assert re.search(r"^cell 5\n +6  loss\.item\(\)", text, re.M), "the magic is line 1"
    assert "cell 1, line 5 in features" in text
    assert outputs["asked"][0].text == "model.0.weight cell 1\n"


def test_a_name_goes_through_what_the_cell_wrote(outputs):
    """IPython's `exit` leads to the shell, and that to all variables again."""
    assert "exit" not in outputs["names"][0]["text"]
    assert "losses" in outputs["names"][0]["text"]


def test_a_recording_that_has_not_ended_says_so(outputs):
    assert "not ended yet" in outputs["running"][0].text


@pytest.mark.rest
def test_an_exception_in_the_cell_ends_it_and_the_report_is_there():
    cells = run(
        "import torch\n%load_ext tether",
        "%%tether\nx = torch.ones(3, requires_grad=True)\ny = x.exp()\ny += 1\ny.sum().backward()",
        "%%tether\nthis is no Python",
        "%%tether --no-such-option\n1",
        allow_errors=True,
    )
    kinds = [one.output_type for one in cells[1].outputs]
    assert kinds == ["display_data", "error"], "one traceback, and after the report"
    assert "cell 2, line 4" in cells[1].outputs[0].data["text/plain"]
    assert cells[1].outputs[1].ename == "RuntimeError"
    assert [one.get("ename") for one in cells[2].outputs][-1] == "SyntaxError"
    assert all(one.output_type != "display_data" for one in cells[3].outputs)


@pytest.mark.rest
def test_answers_are_cards():
    """Each with its words escaped, in a kernel as Jupyter runs it."""
    cells = run(
        CELLS["set up"],
        CELLS["with"],
        "tether.relate(model[0].weight, model[0].weight.detach())",
        "tether.describe(model[0].weight[0])",
        "x = torch.ones(2, requires_grad=True); tether.why(x, (x * 2).sum())",
        "r.findings",
        "r.why('model.0.weight')",
        "type(r.findings)()",
    )
    shown = [output_html(cell) for cell in cells[2:]]
    assert all(text.startswith("<div style=") for text in shown)
    assert all("<script" not in text for text in shown)
    for text, said in zip(
        shown,
        ["the same memory (36 bytes)", "12 bytes used of 36", "SumBackward0", "gradient-cut",
         "what happened to it", "nothing to report"],
        strict=True,
    ):  # fmt: skip
        assert said in text


def output_html(cell):
    (output,) = [one for one in cell.outputs if one.output_type == "execute_result"]
    assert "text/plain" in output.data
    return output.data["text/html"]
