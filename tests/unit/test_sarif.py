"""The SARIF report: valid by the standard's schema, and read by what reads such files.

`sarif-2.1.0.json` beside this file is the schema of the standard (OASIS, 2.1.0-rtm.4) as the package
`sarif-om` 1.0.4 carries it.
"""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from test_report import FILE, HOSTILE, example

from tether.facts import Gap, Site
from tether.finding import Edit, Evidence, Finding, Fix
from tether.report.formats import sarif
from tether.report.tables.gaps import SENTENCES
from tether.verdicts import VERDICTS


def every_kind():
    """A report with a finding of every verdict, hostile ones, and places of every sort."""
    about = example()
    first = about.findings[0]
    odd = [
        Site("<string>", 3),
        Site("C:\\app\\my file.py", 2, 1, 4, 1, "f.<locals>.g"),
        Site("/elsewhere/caf\udce9 #1.py", 1, 5, 1, 9),
        Site("", 0),
    ]
    about.findings = [
        first,
        *(replace(first, slug=one.slug, severity=one.severity) for one in VERDICTS),
        *(Finding("gradient-cut", "note", HOSTILE, place, "", HOSTILE) for place in odd),
        replace(
            first,
            slug="unused-ignore",
            evidence=tuple(Evidence("x", place, HOSTILE) for place in odd),
            fix=Fix(HOSTILE, (Edit(FILE, 7, 1, 9, 1, ""), Edit(odd[1].file, 1, 1, 1, 1, HOSTILE))),
            proven=True,
        ),
        replace(first, evidence=(), slug="of-an-extension"),
    ]
    about.trace.gaps.append(Gap("failed", HOSTILE))
    return about


def log_of(about):
    return json.loads(sarif.dumps(about))


@pytest.fixture(scope="module")
def schema():
    text = Path(__file__).with_name("sarif-2.1.0.json").read_text("utf-8")
    return jsonschema.Draft4Validator(json.loads(text))


def test_the_log_is_valid(schema):
    for about in (example(), every_kind(), replace(example(), findings=[])):
        log = log_of(about)
        assert [error.message for error in schema.iter_errors(log)] == []


def test_the_schema_can_fail(schema):
    log = log_of(example())
    for spoil in (
        lambda one: one.pop("version"),
        lambda one: one["runs"][0]["results"][0].update(level="bad"),
        lambda one: one["runs"][0]["results"][0]["locations"][0].update(place=1),
        lambda one: one["runs"][0]["results"][0]["codeFlows"][0].pop("threadFlows"),
        lambda one: one["runs"][0]["tool"]["driver"]["rules"][0].pop("id"),
    ):
        spoilt = copy.deepcopy(log)
        spoil(spoilt)
        assert list(schema.iter_errors(spoilt))


def test_each_verdict_is_a_rule_with_its_page():
    (run,) = log_of(every_kind())["runs"]
    rules = {one["id"]: one for one in run["tool"]["driver"]["rules"]}
    assert len(rules) == len(run["tool"]["driver"]["rules"])
    for verdict in VERDICTS:
        rule = rules[verdict.slug]
        assert rule["help"]["markdown"] == verdict.page.strip()
        assert rule["defaultConfiguration"]["level"] == verdict.severity
        assert rule["fullDescription"]["text"].endswith((".", ":"))
        assert "##" not in rule["fullDescription"]["text"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_a_rule_links_to_its_page_where_the_site_is_known(schema, monkeypatch):
    monkeypatch.delenv("TETHER_DOCS_URL", raising=False)
    assert "helpUri" not in log_of(example())["runs"][0]["tool"]["driver"]["rules"][0]
    monkeypatch.setenv("TETHER_DOCS_URL", "https://docs.example.org/tether/")
    log = log_of(every_kind())
    assert [error.message for error in schema.iter_errors(log)] == []
    for rule in log["runs"][0]["tool"]["driver"]["rules"]:
        address = f"https://docs.example.org/tether/verdicts/{rule['id']}/"
        known = any(rule["id"] == one.slug for one in VERDICTS)
        assert rule.get("helpUri") == (address if known else None)


def test_the_two_ends_are_a_flow_and_quote_their_lines():
    (result,) = log_of(example())["runs"][0]["results"]
    flow = result["codeFlows"][0]["threadFlows"][0]["locations"]
    told = [
        (
            one["location"]["message"]["text"],
            one["location"]["physicalLocation"]["contextRegion"]["snippet"]["text"].strip(),
        )
        for one in flow
    ]
    assert told == [
        ("cut here", "return self.layer3(out.detach())"),
        ("made here", "self.layer1 = nn.Linear(4, 4)"),
    ]
    (related,) = result["relatedLocations"]
    assert related["physicalLocation"]["region"]["startLine"] == 4


def test_a_finding_whose_evidence_lies_elsewhere_starts_its_flow_at_its_own_place():
    about = example()
    first = about.findings[0]
    about.findings = [replace(first, evidence=first.evidence[1:])]
    (result,) = log_of(about)["runs"][0]["results"]
    flow = result["codeFlows"][0]["threadFlows"][0]["locations"]
    lines = [one["location"]["physicalLocation"]["region"]["startLine"] for one in flow]
    assert lines == [7, 4]
    assert flow[0]["location"]["message"]["text"] == "detach here"


def test_paths_are_uris():
    (run,) = log_of(every_kind())["runs"]
    uris = {
        place["physicalLocation"]["artifactLocation"]["uri"]
        for result in run["results"]
        for place in result["locations"]
        if "physicalLocation" in place
    }
    assert uris == {
        "train.py",
        "%3Cstring%3E",
        "file:///C:/app/my%20file.py",
        "file:///elsewhere/caf%E9%20%231.py",
    }


def test_a_fingerprint_survives_moved_lines_and_tells_subjects_apart():
    about = example()
    (first,) = about.findings
    here = first.site
    moved = here._replace(line=70, end_line=70, first_line=65)
    other = here._replace(expression="out2.detach()")
    about.findings = [
        first,
        replace(first, site=moved),
        replace(first, site=other),
        replace(first, subject="b"),
    ]
    prints = [one["partialFingerprints"]["site/v1"] for one in log_of(about)["runs"][0]["results"]]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_what_could_not_be_seen_is_a_notification():
    (run,) = log_of(example())["runs"]
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"] == f"{SENTENCES['compiled']} (2 times)"


def test_sarif_tools_reads_it(tmp_path):
    loader = pytest.importorskip("sarif.loader")
    file = tmp_path / "run.sarif"
    file.write_text(sarif.dumps(example()))
    (record,) = loader.load_sarif_file(str(file)).get_records()
    assert (record["Location"], record["Line"]) == ("train.py", 7)
    assert record["Severity"] == "warning"
    assert record["Code"] == "gradient-cut"
