"""Where the text keeps what a call gives, and which lines can have read it after a write."""

import pytest

from tether.facts import Site
from tether.source.keeping import follows, keeping, loads
from tether.source.syntax import Source

CALL = "x.numpy()"


def kept_in(text):
    line, row = next((n, row) for n, row in enumerate(text.splitlines(), 1) if CALL in row)
    column = row.index(CALL) + 1
    source = Source(text)
    return source, keeping(source, Site("/p.py", line, column, line, column + len(CALL)))


@pytest.mark.parametrize(
    ("text", "name", "many"),
    [
        ("a = x.numpy()", "a", False),
        ("a: list = x.numpy()", "a", False),
        ("self.a = x.numpy()[0].T.reshape(2)", "self.a", False),
        ("a = [x.numpy() for x in xs]", "a", False),
        ("a = {'k': (x.numpy(), 1)}", "a", False),
        ("a['k'] = x.numpy()", "a", True),
        ("run.log.append(x.numpy())", "run.log", True),
        ("a = f(x.numpy())", None, None),
        ("a = x.numpy() + 1", None, None),
        ("a = [y for y in x.numpy()]", None, None),
        ("log.append(1, x.numpy())", None, None),
    ],
)
def test_what_keeps_it(text, name, many):
    _, kept = kept_in(text)
    assert (kept and (kept.name, kept.many)) == (name and (name, many))


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("a = x.numpy()\nx.add_(1)\nprint(a)", [3]),
        ("a = x.numpy()\nprint(a)\nx.add_(1)", []),
        ("a = x.numpy()\nx.add_(1)\na = 0\nprint(a)", []),
        ("for t in r:\n    a = x.numpy()\n    x.add_(1)\n    print(a)\nprint(a)", [5]),
        ("for t in r:\n    a.append(x.numpy())\n    x.add_(1)\nprint(a)", [4]),
        ("def f():\n    x.add_(1)\na = x.numpy()\nf()\nprint(a)", [5]),
        ("def f():\n    x.add_(1)\n    print(a)\na = x.numpy()\nf()", []),
    ],
)
def test_what_reads_it_after_a_write(text, after):
    source, kept = kept_in(text)
    lines = text.splitlines()
    line = next(n for n, row in enumerate(lines, 1) if "add_" in row)
    write = Site("/p.py", line, function="f" if lines[line - 2].startswith("def") else "<module>")
    reads = [one for one in loads(source, kept) if follows(source, one, kept, write)]
    assert [one.lineno for one in reads] == after
