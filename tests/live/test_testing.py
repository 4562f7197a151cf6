"""The assertions, and the pytest plugin as other people's tests meet it."""

import pytest
import torch
from torch import nn

from tether import testing
from warm import python

pytest_plugins = ["pytester"]


def test_independent():
    x = torch.ones(3, requires_grad=True)
    testing.assert_independent(x, x.detach().clone())
    with pytest.raises(AssertionError, match="share memory"):
        testing.assert_independent(x, x.detach())
    with pytest.raises(AssertionError, match="gradient flows"):
        testing.assert_independent(x, x.clone())


def test_shares():
    x = torch.ones(3)
    testing.assert_shares(x, x[1:])
    testing.assert_shares(x, x.numpy())
    with pytest.raises(AssertionError, match="share no memory"):
        testing.assert_shares(x, x.clone())


def test_gradient_reaches():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    loss = net(torch.ones(1, 2)).sum()
    testing.assert_gradient_reaches(loss, net)
    cut = net[1](net[0](torch.ones(1, 2)).detach()).sum()
    with pytest.raises(AssertionError, match=r"no gradient reaches 0\.weight, 0\.bias: no path"):
        testing.assert_gradient_reaches(cut, net)
    with pytest.raises(AssertionError, match="nothing there requires grad"):
        testing.assert_gradient_reaches(loss, nn.Identity())
    testing.assert_gradient_reaches(loss, net[0].weight)


def test_unchanged():
    x = torch.ones(3)
    with testing.assert_unchanged(x):
        x + 1
    with pytest.raises(AssertionError, match="mul_"), testing.assert_unchanged(x):
        x.mul_(2)


def cut():
    w, b = (torch.ones(3, requires_grad=True) for _ in range(2))
    opt = torch.optim.SGD([w, b], lr=0.1)
    (w.detach() * b).sum().backward()
    opt.step()


def test_no_findings():
    testing.assert_no_findings(lambda: torch.ones(3).sum())
    with pytest.raises(AssertionError, match="gradient-cut"):
        testing.assert_no_findings(cut)
    testing.assert_no_findings(cut, allow=["gradient-cut"])
    testing.assert_no_findings(cut, at="error")
    with pytest.raises(ValueError, match="no severity"):
        testing.assert_no_findings(cut, at="grave")


PLUGIN_TESTS = """
    import pytest, torch

    def cut():
        w, b = (torch.ones(3, requires_grad=True) for _ in range(2))
        opt = torch.optim.SGD([w, b], lr=0.1)
        (w.detach() * b).sum().backward()
        opt.step()

    def test_cut():
        cut()

    @pytest.mark.tether_allow("gradient-cut")
    def test_allowed():
        cut()

    @pytest.mark.tether_limit(copies=1)
    def test_two_copies():
        x = torch.ones(3)
        x.clone(), x.clone()

    @pytest.mark.tether_limit(copies=2, bytes=100)
    def test_two_copies_allowed():
        x = torch.ones(3)
        x.clone(), x.clone()

    def test_fails_by_itself():
        cut()
        assert False, "mine"
"""


def runpytest(pytester, *arguments):
    """Run pytest as `pytester.runpytest_subprocess` does, in a fork that has torch imported."""
    done = python("-m", "pytest", *arguments, folder=pytester.path)
    out, err = done.stdout.splitlines(), done.stderr.splitlines()
    return pytest.RunResult(done.returncode, out, err, duration=0)


def test_the_plugin_fails_tests_with_findings(pytester):
    pytester.makepyfile(PLUGIN_TESTS)
    result = runpytest(pytester, "--tether", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(["*gradient-cut*", "*2 copies copied, 1 allowed*"])
    result.stdout.fnmatch_lines(["*mine*"])


FAILING = """
import unittest
import torch

def test_in_place():
    w = torch.ones(3, requires_grad=True)
    h = w.exp()
    h[0] = 0.0
    h.sum().backward()

def test_inside_a_block():
    import tether
    with tether.record():
        torch.ones(2) @ torch.ones(3)

class TestCase(unittest.TestCase):
    def test_in_a_class(self):
        w = torch.ones(3, requires_grad=True)
        h = w.exp()
        h[0] = 0.0
        h.sum().backward()
"""


def test_a_failing_test_is_explained_and_shows_none_of_our_frames(pytester):
    pytester.makepyfile(FAILING)
    result = runpytest(pytester, "--tether", "-p", "no:cacheprovider", "--tb=long")
    result.assert_outcomes(failed=3)
    shown = result.stdout.str()
    assert "modified by an inplace operation" in shown
    for ours in ("listener.py", "patches", "overrides.py"):
        assert ours not in shown
    assert shown.count(">       h.sum().backward()") == 2
    explained = " ".join(shown.split("- tether -")[1].split())
    assert "saved-overwritten h" in explained
    assert ":7 in test_in_place" in explained, "where it was overwritten"
    assert ":6 in test_in_place" in explained, "where it was saved"
    assert "TestCase.test_in_a_class" in shown.split("- tether -")[-1]


SKIPPED = """
import pytest, torch, unittest

def test_skipped():
    torch.ones(3)
    pytest.skip("later")

@pytest.mark.xfail
def test_expected():
    torch.ones(3) @ torch.ones(4)

@pytest.mark.parametrize("n", [1, 2])
def test_passes(n):
    assert torch.ones(n).sum() == n

class TestCase(unittest.TestCase):
    def test_skipped(self):
        self.skipTest("later")
"""


def test_what_is_skipped_expected_or_passes_stays_so(pytester):
    pytester.makepyfile(SKIPPED)
    result = runpytest(pytester, "--tether", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, skipped=2, xfailed=1)
    assert "0 findings in 5 tests recorded" in result.stdout.str()


ASKED = """
import pytest, torch

def cut():
    w, b = (torch.ones(3, requires_grad=True) for _ in range(2))
    opt = torch.optim.SGD([w, b], lr=0.1)
    (w.detach() * b).sum().backward()
    opt.step()

@pytest.mark.tether
def test_marked():
    cut()

def test_by_hand(tether_recording):
    cut()
    tether_recording.stop()
    assert [one.slug for one in tether_recording.findings] == ["gradient-cut"]
    cut()

def test_as_ever():
    cut()
"""


def test_a_test_can_ask_to_be_recorded(pytester):
    pytester.makepyfile(ASKED)
    result = runpytest(pytester, "-p", "no:cacheprovider", "--strict-markers")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*gradient-cut `w` got no gradient*(2 tests)"])
    assert "1 finding in 2 tests recorded" in result.stdout.str()


LONG = """
import torch

def test_long(tether_recording):
    x = torch.ones(3)
    for _ in range(3000):
        x = x + 1
    tether_recording.stop()
    assert tether_recording.trace.ended > 3000
    assert len(tether_recording.trace.events) < 1500
"""


def test_of_a_long_test_the_last_calls_are_kept(pytester):
    pytester.makepyfile(LONG)
    arguments = ("--tether", "--tether-limit", "100", "-p", "no:cacheprovider")
    runpytest(pytester, *arguments).assert_outcomes(passed=1)


def test_nothing_fails_where_findings_are_only_to_be_listed(pytester):
    pytester.makepyfile(PLUGIN_TESTS)
    arguments = ("--tether", "--tether-fail-on", "never", "-k", "cut", "-p", "no:cacheprovider")
    result = runpytest(pytester, *arguments)
    result.assert_outcomes(passed=1)
    assert "1 finding in 1 test recorded" in result.stdout.str()


@pytest.mark.rest
def test_workers_report_what_they_found(pytester):
    pytester.makepyfile(test_one=PLUGIN_TESTS, test_two=ASKED)
    result = runpytest(pytester, "--tether", "-n", "2", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=6)
    assert "findings in 8 tests recorded" in result.stdout.str()
    result.stdout.fnmatch_lines(["*- tether -*", "*gradient-cut*"])


def test_without_the_option_nothing_is_recorded(pytester):
    pytester.makepyfile(PLUGIN_TESTS)
    result = runpytest(pytester, "-p", "no:cacheprovider", "--strict-markers")
    result.assert_outcomes(passed=4, failed=1)


def test_another_severity_can_fail(pytester):
    pytester.makepyfile(PLUGIN_TESTS)
    result = runpytest(
        pytester,
        "--tether",
        "--tether-fail-on",
        "error",
        "-k",
        "test_cut",
        "-p",
        "no:cacheprovider",
    )
    result.assert_outcomes(passed=1)
