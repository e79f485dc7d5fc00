"""Reports: what they judge, and that their files are valid and say what the records say."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from example_report import PROFILE, case, report, timeline
from rich.console import Console

from llmsim.errors import InputError
from llmsim.timeline import Timeline
from llmsim.validation import Point, summarize
from llmsim.validation.page import page
from llmsim.validation.report import side_by_side


def test_only_shaped_links_are_judged():
    made = report()
    assert len(made.shaped) == 3
    criteria = {what: (value, reached) for what, value, _, reached in made.findings()}
    errors = summarize(made.shaped)
    assert criteria["median |error|"] == (errors.median_abs, False)
    assert criteria["95th percentile of |error|"] == (errors.p95_abs, False)
    assert criteria["our speed / gloo's, lowest of 1"] == (1.0, True)


@pytest.mark.parametrize(("error", "reached"), [(0.04, (True, True)), (0.06, (False, True)), (0.16, (False, False))])
def test_criteria_are_reached_by_small_errors_only(error, reached):
    made = replace(report(), points=(Point(case(), 1 + error, (1.0,)),), pairs=())
    assert tuple(r for *_, r in made.findings()) == reached


def test_without_shaped_links_there_is_nothing_to_reach():
    assert replace(report(), points=(Point(case(network="loopback"), 1.0, (1.0,)),), pairs=()).findings() == []


class Checker(HTMLParser):
    """Collects text, and whether every element is closed in order and nothing is loaded from elsewhere."""

    VOID = ("meta", "br", "path", "use", "link")

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.rows = 0

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        self.rows += tag == "tr"
        for name, value in attrs:
            if name in ("src", "href", "xlink:href"):
                assert value.startswith("#"), f"{tag} loads {value}"

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)


def test_the_page_is_well_formed_and_loads_nothing():
    made = report()
    checker = Checker()
    checker.feed(page(made))
    checker.close()
    assert checker.open == []
    text = " ".join(checker.text)
    for point in made.points:
        assert point.case.name in text
        assert f"{point.error:+.1%}" in text
    assert "A title with <angles> & more" in text
    assert "Some <CPU> & more" in text
    assert "A note with <angles>." in text
    assert "nan" not in text.lower().split()


def test_the_page_is_the_same_every_time():
    assert page(report()) == page(report())


def test_files_hold_what_the_records_say(tmp_path):
    made = report()
    files = made.write(tmp_path / "new" / "folder", "some")
    assert {kind: path.name for kind, path in files.items()} == {
        "json": "some.json", "png": "some.png", "html": "some.html", "md": "some.md", "trace": "some-trace.json"
    }  # fmt: skip
    document = json.loads(files["json"].read_text())
    assert document["machine"]["cpu"] == PROFILE.machine.cpu
    assert [p["measured_s"] for p in document["points"]] == [p.measured_s for p in made.points]
    assert document["summary_shaped"]["points"] == 3
    assert document["groups"]["ranks"]["8 ranks"]["worst_abs"] == pytest.approx(0.2)
    assert document["pairs"][0]["speed_ratio"] == 1.0
    assert document["profile"]["transports"]["netlab"]["fits"][0]["points"][0]["x"] == 4
    gist = files["md"].read_text().splitlines()
    assert "| our speed / gloo's, lowest of 1 | 100.0% | ≥ 97% | reached |" in gist
    assert "![predicted against measured](some.png)" in gist
    for line in gist:  # a bar inside a cell would end it
        assert line.replace("\\|", "").count("|") in (0, 5, 6) or not line.startswith("|")
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    trace = Timeline.from_chrome(files["trace"])
    assert trace.makespan_s == pytest.approx(made.overlays[0].measured.makespan_s)
    assert sorted(trace.streams) == ["recv (measured)", "recv (predicted)", "send (measured)", "send (predicted)"]


def test_both_timelines_stand_side_by_side():
    predicted, measured = timeline(1.0), timeline(2.0)
    both = side_by_side(predicted, measured)
    assert len(both) == len(predicted) + len(measured)
    for name, one in (("predicted", predicted), ("measured", measured)):
        spans = [s for s in both if s.stream == f"send ({name})"]
        assert [(s.rank, s.start_s, s.end_s) for s in spans] == [
            (s.rank, s.start_s, s.end_s) for s in one if s.stream == "send"
        ]


def test_tables_show_every_point_and_the_verdict():
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for one in report().tables():
        console.print(one)
    text = console.export_text()
    for point in report().points:
        assert point.case.name in text
    assert "missed" in text
    assert "reached" in text
    short = [one.title for one in report().tables(every_point=False)]
    assert "Predicted and measured" not in short


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        report().write(tmp_path / "file")
