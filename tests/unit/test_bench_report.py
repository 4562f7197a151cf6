"""The reports of `tether bench`, from figures made by hand: no torch, no clock."""

import sys

import pytest

from tether.cli.bench import sizes_of
from tether.measure.cost import Bench, Cost, Limit, from_dict
from tether.report import bench as render
from tether.report import plots
from tether.report.page.cost_drawing import amount, duration


def cost(way, nbytes, seconds, spread=0.01, **more):
    low, high = seconds * (1 - spread), seconds * (1 + spread)
    return Cost(way, "tensor", nbytes, seconds, low, high, 25, 1, **more)


BENCH = Bench(
    costs=(
        cost("a", 4, 1e-6),
        cost("b", 4, 1.02e-6),
        cost("a", 1 << 20, 1e-3, allocated=1 << 20, peak=1 << 21, waits=0, memory="none"),
        cost("b", 1 << 20, 3e-3),
        Cost("c", "tensor", 1 << 20, None, note="RuntimeError: refused"),
    ),
    floor={4: 5e-7, 1 << 20: 2.5e-4},
    limits=(Limit("mapped memory, one thread", 1 << 20, 2.5e-4, 2e-4, 3e-4),),
    machine={"torch": "2.13.0", "cores": "2"},
    noise=("the machine was busy",),
)


def test_a_run_comes_back_from_its_file_unchanged():
    assert render.read(render.to_json(BENCH)) == BENCH


def test_share_is_the_memory_s_time_over_the_way_s():
    assert BENCH.share(BENCH.costs[2]) == 0.25
    assert BENCH.share(BENCH.costs[4]) is None


def test_ways_within_their_spread_are_not_ranked():
    small, large = render.ranked(BENCH, "tensor")
    assert small.fastest == ("a", "b")
    assert large.fastest == ("a",)
    assert large.worst.way == "b"


def test_a_wide_spread_hides_a_difference():
    bench = Bench((cost("a", 4, 1e-3), cost("b", 4, 2e-3, spread=0.6)), {4: 1e-3})
    assert render.ranked(bench, "tensor")[0].fastest == ("a", "b")


def test_words_name_fastest_and_when_it_matters():
    text = "\n".join(render.words(BENCH))
    assert "4 B: a, b (not told apart)" in text
    assert "1 MiB: a\n" in text
    assert "Not quiet: the machine was busy" in text
    best, when = render.words(BENCH)[-2:]
    assert best == "Take a: no way is faster at any size."
    assert when.startswith(
        "It matters from 1 MiB on, most at 1 MiB: b takes 3.0 times as long as a"
    )


def test_another_way_is_named_where_it_is_faster():
    costs = (cost("a", 4, 1e-6), cost("b", 4, 3e-6), cost("a", 64, 2e-6), cost("b", 64, 1e-6))
    more = (cost("a", 256, 1e-6), cost("b", 256, 2e-6))
    line = render.words(Bench((*costs, *more), {}))[-2]
    assert line == "Take a: no way is faster at 2 of 3 sizes; b is faster at 64 B."


def test_of_two_families_each_has_a_line():
    other = [
        cost(way, 4, seconds)._replace(family="numpy") for way, seconds in (("c", 1), ("d", 2))
    ]
    first, second = render.words(BENCH._replace(costs=(*BENCH.costs, *other)))[-2:]
    assert first.startswith("Copies of a tensor: Take a: no way is faster at any size. It matters")
    assert second.startswith("A tensor to an independent array: Take c: no way is faster")


def test_the_page_draws_a_line_for_each_way():
    page = render.to_html(BENCH)
    assert page.count('<path class="c0" d="M0.0 ') == 1
    assert "the memory&#x27;s own copy" in page
    assert (
        "figure"
        not in render.to_html(BENCH._replace(costs=BENCH.costs[:2])).partition("</style>")[2]
    )


def test_words_say_when_nothing_differs():
    bench = Bench((cost("a", 4, 1e-6), cost("b", 4, 1.1e-6)), {4: 1e-6})
    assert any("does not matter at any size measured" in line for line in render.words(bench))


def test_what_was_refused_is_told_below_the_table():
    text = render.to_text(BENCH, width=200)
    assert "Not measured: c: RuntimeError: refused" in text
    assert "25%" in text


def test_a_refusal_of_all_is_told_once():
    refused = [Cost(way, "tensor", 1, None, note="TypeError: no") for way in "abc"]
    text = render.to_text(BENCH._replace(costs=(*refused, *BENCH.costs)), width=200)
    assert "Nothing was measured at 1 B: TypeError: no" in text


def test_what_is_the_same_in_every_row_is_said_once():
    here = [cost("a", 4, 1e-6, waits=0, memory="none"), cost("a", 8, 1e-6, waits=1, memory="none")]
    head, _, below = render.to_text(Bench(tuple(here), {4: 1e-6}), width=200).partition("In every")
    assert "waits" in head
    assert "memory" not in head
    assert "memory shared with x: none" in below


def test_a_narrow_table_fits_and_says_what_it_leaves_out():
    text = render.to_text(BENCH, width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "Left out for want of room: speed, faults, peak" in text


@pytest.mark.parametrize(
    ("seconds", "said"), [(1e-3, "same"), (2e-3, "2.00x slower"), (5e-4, "2.00x faster")]
)
def test_against_an_old_run(seconds, said):
    assert render.against(cost("a", 1 << 20, seconds), BENCH) == said


def test_against_what_was_not_measured():
    assert render.against(cost("z", 4, 1.0), BENCH) == "not there"


def test_comparing_says_that_the_machines_differ():
    old = BENCH._replace(machine={"torch": "2.9.0", "cores": "2"})
    line = render.words(BENCH, old)[-4]
    assert "0 slower, 0 faster, 4 the same" in line
    assert "torch 2.9.0 then, 2.13.0 now" in line


@pytest.mark.parametrize(
    ("nbytes", "said"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1 << 28, "256 MiB"),
    ],
)
def test_amount(nbytes, said):
    assert amount(nbytes) == said


@pytest.mark.parametrize(("seconds", "said"), [(2e-9, "2 ns"), (1e-6, "1 us"), (0.25, "250 ms")])
def test_duration(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"kind": "tether bench", "schema": 9}', '{"kind": "x"}']
)
def test_a_foreign_file_is_refused_in_words(text):
    with pytest.raises(ValueError, match=r"^it(s)? "):
        render.read(text)


def test_a_damaged_file_is_refused():
    found = BENCH.to_dict()
    del found["costs"][0]["way"]
    with pytest.raises(ValueError, match="damaged"):
        from_dict(found)


def test_sizes():
    assert sizes_of("1:64") == [1, 4, 16, 64]
    assert sizes_of("4K, 1M") == [4096, 1 << 20]
    assert sizes_of("10:50") == [10, 40, 50]


@pytest.mark.parametrize("text", ["0", "x", "8:4", "1:2:3", ""])
def test_bad_sizes(text):
    with pytest.raises(ValueError, match=r"no size|no range"):
        sizes_of(text)


def test_the_picture_holds_every_way_and_the_limit():
    pytest.importorskip("matplotlib")
    figure = plots.draw(BENCH)
    log, linear = figure.axes
    assert (log.get_xscale(), log.get_yscale()) == ("log", "log")
    assert (linear.get_xscale(), linear.get_yscale()) == ("linear", "linear")
    for axes in figure.axes:
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert set(lines) == {"a", "b", "limit: copy into mapped memory"}
        assert list(lines["b"].get_ydata()) == [1.02e-6, 3e-3]
        looks = {
            (line.get_color(), line.get_marker(), line.get_linestyle()) for line in lines.values()
        }
        assert len(looks) == 3


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_picture_is_written(tmp_path, kind, start):
    pytest.importorskip("matplotlib")
    file = tmp_path / f"plot.{kind}"
    plots.write(BENCH, str(file))
    assert file.read_bytes().startswith(start)


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(plots.CannotPlot, match=r"pip install 'tether\[plot\]'"):
        plots.check("x.png")
