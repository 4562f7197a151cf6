"""The HTML page: what it holds, and that nothing from a program acts on its reader."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from traces import trace

from tether.analysis.history import History
from tether.facts import Name, Site
from tether.finding import Edit, Evidence, Finding, Fix
from tether.report.document.findings import Findings
from tether.report.page import page
from tether.report.page.shown_cards import FindingList
from tether.report.tables.annotated import annotated
from tether.report.tables.copies import copies
from tether.report.tables.gradients import gradients

# Each line is the program and its own source: `traces` puts event N at line N, columns 1 to 9.
PROGRAM = """\
w = param net.a.w
u = param net.b.u
x = data
h = mul w x
d = detach h
o = mul u d
copy_ x o
backward o
step w=none u=some
"""


def example(**finding) -> Findings:
    made = trace(*PROGRAM.splitlines())
    made.sources = {"/p/main.py": PROGRAM}
    cut, loss = made.sites[4], made.sites[7]
    facts = {
        "slug": "gradient-cut",
        "severity": "warning",
        "subject": "net.a.w",
        "site": cut,
        "operation": "detach",
        "message": "`net.a.w` got no gradient.",
        "evidence": (Evidence("cut", cut, "cut here"), Evidence("used", loss, "loss here")),
        "fix": Fix("Drop it.", (Edit("/p/main.py", 5, 1, 5, 2, "EDITED"),)),
        "tensors": (0,),
    }
    found = [Finding(**{**facts, **finding})]
    return Findings(made, found, gradients(History(made), found), copies(made))


class Elements(HTMLParser):
    """Every element with its attributes, and the text in all of them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def test_lines_bear_their_marks():
    (file,) = annotated(example())
    marks = {at: {kind: one.count for kind, one in line.marks.items()}
             for at, line in file.lines.items() if line.marks}  # fmt: skip
    made = {"owns": 1}  # a parameter made of nothing
    assert marks == {1: made, 2: made, 5: {"cut": 1, "shares": 1}, 7: {"written": 1, "owns": 1}}
    assert [step.role for step in file.lines[5].steps] == [
        "made by mul", "read and shared by detach", "read by mul",
    ]  # fmt: skip


def test_names_on_one_memory_have_one_group():
    (file,) = annotated(example())
    groups = {
        PROGRAM.splitlines()[at - 1][span.start : span.end]: set(span.groups)
        for at, spans in file.names.items()
        for span in spans
    }
    assert groups["h"] == groups["d"], "detach shares"
    assert not groups["h"] & groups["x"]


def test_a_line_bears_the_severity_of_the_finding_and_only_its_mark_is_told():
    (file,) = annotated(example())
    assert file.lines[5].severity == "warning"
    assert file.lines[5].told == {"cut": "warning"}
    assert file.lines[7].severity is None


def test_every_link_leads_somewhere_and_ids_are_unique():
    elements = Elements(page.render(example())).elements
    ids = [attrs["id"] for _, attrs in elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = [attrs["href"] for tag, attrs in elements if tag == "a"]
    assert len(links) > 10
    assert not [link for link in links if not link.startswith("#") or link[1:] not in ids]


def test_the_page_allows_only_its_own_script_and_style():
    text = page.render(example())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'")
    for tag in ("script", "style"):
        body = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "http:" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https:" not in text


def test_a_page_without_source_holds_no_line_of_it():
    secret = "secret_line = 'of the program'"
    about = example()
    about.trace.sources["/p/main.py"] += secret + "\n"
    about.trace.sites[4] = about.trace.sites[4]._replace(expression="secret_call()")
    assert "secret_line" in page.render(about)
    bare = page.render(about, source=False)
    assert "secret_" not in bare
    assert "EDITED" not in bare
    assert "detach h" not in bare
    assert "net.a.w" in bare


@pytest.mark.parametrize(
    "bad",
    [
        "</script><img src=x onerror=alert(1)>",
        "</style></title></textarea><img src=x>",
        "\"' onmouseover='alert(1)' x=\"",
        "{{ 7 * 7 }}{% for x in y %}",
        "\x00\x07\x1b[31m\u202e\u2066\u200f\ufeff\ud800",
        "--><![CDATA[<img src=x>]]>",
    ],
)
def test_hostile_text_stays_text(bad):
    clean = {(tag, *attrs) for tag, attrs in Elements(page.render(example())).elements}
    about = example(slug=bad, subject=bad, message=bad, also=(bad,), assumes=(bad,),
                    fix=Fix(bad, (Edit("/p/main.py", 5, 1, 5, 2, bad),)),
                    site=Site("/p/main.py", 5, 1, 5, 9, bad, 1, True, bad, bad))  # fmt: skip
    about.trace.program = [bad]
    about.trace.names.append(Name(2, bad, 0))
    about.trace.sites = [one._replace(function=bad) for one in about.trace.sites]
    about.trace.sources = {"/p/main.py": PROGRAM.replace("\n", f"  # {bad}\n"), bad: bad * 3}
    text = page.render(about)
    found = Elements(text)
    assert {(tag, *attrs) for tag, attrs in found.elements} <= clean | {
        ("i", "class"), ("i", "data-g"), ("i", "class", "data-g"), ("option", "value"),
        ("code",), ("dt",), ("dd", "class"), ("div", "class"), ("mark",), ("dl",), ("dd",),
        ("details", "class", "data-f"), ("ul", "class"), ("details",), ("summary",), ("li",),
    }  # fmt: skip
    assert not re.search("[\x00-\x09\x0b-\x1f\u200f\u202a-\u202e\u2066-\u2069\ufeff]", _shown(text))
    if bad.isprintable():
        assert bad in "".join(found.texts)
    text.encode("utf-8")


def _shown(text: str) -> str:
    return re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.DOTALL)


def test_the_check_of_hostile_text_can_fail():
    assert ("img", "src") in {(tag, *attrs) for tag, attrs in Elements("<img src=x>").elements}


def test_a_line_of_a_megabyte():
    about = example()
    about.trace.sources["/p/main.py"] = PROGRAM + "data = '" + "(" * 1_000_000 + "'\n"
    text = page.render(about)
    assert len(text) < 100_000
    assert "998,009 more characters" in text


def test_long_programs_stay_small():
    about = example()
    filler = "".join(f"value_{n} = compute({n}, 'text')  # {n}\n" for n in range(20_000))
    about.trace.sources["/p/main.py"] = PROGRAM + filler
    assert len(page.render(about)) < 8_000_000


def test_a_typical_page_is_small():
    about = example()
    about.trace.sources["/p/main.py"] = PROGRAM * 30
    assert len(page.render(about)) < 300_000


def test_a_card_is_text_but_for_its_own_marks():
    bad = "`<img src=x>` & <b>"
    shown = FindingList([example(message=bad, subject=bad).findings[0]])._repr_html_()
    assert "<img" not in shown
    assert "&lt;img src=x&gt;" in shown
    many = FindingList(example().findings * 7)._repr_html_()
    assert "2 more" in many


def test_the_meaning_of_a_finding_links_to_its_page_where_the_site_is_known(monkeypatch):
    monkeypatch.delenv("TETHER_DOCS_URL", raising=False)
    assert "https://" not in page.render(example())
    monkeypatch.setenv("TETHER_DOCS_URL", 'https://docs.example.org/"/')
    address = "https://docs.example.org/&quot;/verdicts/gradient-cut/"
    assert f'<a href="{address}">{address}</a>' in page.render(example())
