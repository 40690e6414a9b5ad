"""The page of a verdict: whole, self-contained, escaped, and true to what the verdict says."""

import base64
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from edge0verify.cli.main import run
from edge0verify.records.status import FAIL, INCONCLUSIVE, PASS
from edge0verify.records.verdict import Verdict
from edge0verify.report.html import report, verdict_html
from edge0verify.report.html_style import DARK, LIGHT
from edge0verify.report.html_svg import COLOURS
from edge0verify.report.html_svg import FAULT as RED
from edge0verify.report.html_text import Html, esc, listing, short, tag
from edge0verify.study.kept_grids import grids_to_json
from tests.report import pages
from tests.report.html_reader import Page


@pytest.fixture(scope="module")
def passing():
    return pages.real()


@pytest.fixture(scope="module")
def failing():
    return pages.real(fault="row-tiles-swapped")


@pytest.fixture(scope="module")
def pass_page(passing):
    return verdict_html(*passing)


@pytest.fixture(scope="module")
def fail_page(failing):
    return verdict_html(*failing)


def headings(page: Page) -> list[str]:
    return [text for tag_, text in page.texts if tag_ == "h2"]


def red_pixels(text: str, name: str) -> int:
    """Pixels in the fault's colour of the heat map whose names begin with `name`."""
    import matplotlib.image as image

    drawing = next(part.split("</svg>")[0] for part in text.split("<svg ") if f'id="{name}-figure_1"' in part)
    red = np.array([int(RED[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    found = 0
    for data in re.findall(r'href="data:image/png;base64,\s*([^"]*)"', drawing):
        pixels = image.imread(io.BytesIO(base64.b64decode(data)))[..., :3]
        if max(pixels.shape[:2]) <= 64:  # not the colour bar
            found += int((np.abs(pixels - red).max(axis=-1) < 0.01).sum())
    return found


class TestContent:
    def test_the_verdict_comes_first_and_every_part_follows(self, pass_page):
        page = Page(pass_page)
        assert page.problems == []
        assert page.text().index("Something was compared") < page.text().index("Layers and stages")
        expected = "Layers and stages|Heat maps by row and column|Code differences|Ladder of layers|Log-probs beside the spread"
        assert headings(page) == [*expected.split("|"), "Environment", "Repeat it"]
        assert "What does not pass" not in page.text()

    def test_figures_are_those_of_the_verdict(self, passing, pass_page):
        verdict, _ = passing
        codes = [r for r in verdict.layers if r.code_diffs is not None]
        text = Page(pass_page).text()
        assert f"{sum(r.equal for r in codes)} of {sum(r.n for r in codes)}" in text
        by_one = sum(r.code_diffs.get("1", 0) for r in codes if r.tensor == "d-xlq")
        assert f"{by_one} off by one" in text
        assert len(Page(pass_page).all("tr")) >= len(verdict.layers)

    def test_a_fault_is_named_first_and_drawn_red(self, failing, fail_page, pass_page):
        verdict, _ = failing
        page = Page(fail_page)
        assert page.problems == [] and verdict.status == FAIL
        assert headings(page)[0] == "What does not pass"
        assert page.text().index(verdict.reasons[0][:40]) < page.text().index("Layers and stages")
        assert "beyond the bound (red)" in fail_page and "beyond the bound (red)" not in pass_page
        assert red_pixels(fail_page, "t1-1a") > 100
        assert red_pixels(fail_page, "t1-1b") == red_pixels(fail_page, "t1-0a") == red_pixels(pass_page, "t1-1a") == 0

    @pytest.mark.parametrize("status", [PASS, FAIL, INCONCLUSIVE])
    def test_each_status_says_what_it_means(self, status):
        page = Page(verdict_html(pages.verdict(status, (pages.entry(0, "d-xl", status=status, reasons=("why",)),))))
        assert page.problems == [] and page.text("title").startswith("Skip to the content")
        assert {PASS: "both variants ran", FAIL: "does not conform", INCONCLUSIVE: "This is no pass"}[status] in page.text()
        assert status in next(text for t, text in page.texts if t == "title")

    def test_an_empty_verdict_says_that_nothing_was_compared(self):
        page = Page(verdict_html(pages.empty()))
        assert page.problems == []
        assert "Nothing was proven" in page.text() and "Nothing was compared." in page.text() and "NOT engaged" in page.text()

    def test_many_layers_and_huge_reasons_stay_small(self):
        verdict = pages.many(150)
        text = verdict_html(verdict)
        page = Page(text)
        assert page.problems == [] and len(text) < 1_500_000
        failing = sum(r.status == FAIL for r in verdict.layers)
        assert f"{failing - 12} more do not pass" in page.text() and f"{len(verdict.reasons) - 8} more reasons" in page.text()

    def test_without_grids_it_says_how_to_keep_them(self, passing):
        text = Page(verdict_html(passing[0])).text()
        assert "--grids" in text and "Share of elements outside" in text

    def test_named_layers_are_drawn_and_others_are_not(self, passing):
        text = verdict_html(*passing, chosen=lambda layer: layer == 1)
        assert "Layer 1, PASS" in text and "Layer 0, PASS" not in text and "1 of 2 layers are drawn" in text

    def test_movement_stands_beside_the_spread(self):
        position = {"name": "prose", "move": 0.06, "shared": 8, "argmax": [3, 4], "argmax_margin": 0.1, "kl": 1e-5}
        pair = {"a": "ref", "b": "mmvq", "max_move": 0.04, "per_prompt": {"prose": 0.04}}
        spread = {"variants": ["ref", "mmvq"], "max_move": 0.04, "pairs": [pair], "left_out": ["mmq", "w11"]}
        top8 = {
            "positions": 1,
            "max_move": 0.06,
            "argmax_changes": 1,
            "set_changes": 0,
            "per_position": [position],
            "spread": spread,
        }
        page = Page(verdict_html(pages.verdict(PASS, (pages.entry(0, "d-xl"),), top8=top8)))
        assert page.problems == []
        assert "Log-probs move by 0.06; accepted variants (ref, mmvq) differ by 0.04 among themselves." in page.text()

    def test_jumps_are_numbered_widest_first(self):
        sizes = [1e-5, 1e-5, 4e-4, 4e-4, 8e-4]
        layers = tuple(pages.entry(i, "d-xl", rel_l2=size) for i, size in enumerate(sizes))
        text = Page(verdict_html(pages.verdict(PASS, layers))).text()
        assert re.search(r"1 d-xl 1 to 2 0\.0004 40 2 d-xl 3 to 4 0\.0008 2 ", text)

    @pytest.mark.parametrize("rel", ["nan", "inf", None, 0.0])
    def test_what_is_not_finite_is_drawn_and_said(self, rel):
        layers = (pages.entry(0, "d-xl"), pages.entry(1, "d-xl", rel_l2=rel), pages.entry(2, "d-xl"))
        page = Page(verdict_html(pages.verdict(PASS, layers)))
        assert page.problems == [] and (rel is None or str(rel).rstrip(".0") in page.text())

    def test_the_same_verdict_makes_the_same_bytes(self, passing, pass_page):
        assert verdict_html(*passing) == pass_page

    def test_drawing_leaves_matplotlib_as_it_was(self):
        import matplotlib

        before = dict(matplotlib.rcParams)
        verdict_html(pages.many(3))
        assert dict(matplotlib.rcParams) == before


class TestHostileNames:
    def test_no_name_becomes_markup_and_nothing_is_loaded(self):
        text = verdict_html(pages.hostile())
        page = Page(text)
        assert page.problems == []
        assert "alert(1)" in page.text() and "http://evil.example" in page.text()
        text.encode("utf-8")
        assert not re.search("[\x00-\x08\u202e\ud800-\udfff]", text)

    def test_the_page_forbids_itself_to_load_or_run_anything(self):
        policies = [a["content"] for a in Page(verdict_html(pages.empty())).all("meta") if a.get("http-equiv")]
        assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]

    def test_escaping(self):
        assert esc('<a href="x">&\x00\u202e') == "&lt;a href=&quot;x&quot;&gt;&amp;\\u0000\\u202e"
        assert tag("p", "<b>", title='"') == '<p title="&quot;">&lt;b&gt;</p>' and esc(Html("<b>")) == "<b>"
        assert short("abcdefghij", 5) == "ab…ij" and len(short("x" * 99, 10)) == 10

    def test_a_very_long_reason_opens_on_demand(self):
        assert "all 5000 characters" in listing(["x" * 5000]) and "characters" not in listing(["x" * 500])

    def test_the_reader_of_pages_sees_what_it_is_there_for(self):
        """The checks above must be able to fail."""
        good = "<h1>a</h1><h2>b</h2>"
        assert Page(good).problems == []
        for bad in (
            "<script>1</script>", '<p onclick="x">y</p>', '<a href="http://x/">y</a>', '<a href="#no">y</a>', "<p>", "<h4>c</h4>",
            '<p id="i"></p><p id="i"></p>', "<p><b></p></b>", "<svg></svg>", '<p style="background:url(http://x)">y</p>',
            "<style>@import 'x';</style>",
        ):  # fmt: skip
            assert Page(good + bad).problems, bad


class TestColours:
    @staticmethod
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    def contrast(self, a: str, b: str) -> float:
        low, high = sorted((self.light(a), self.light(b)))
        return (high + 0.05) / (low + 0.05)

    @pytest.mark.parametrize("theme", [LIGHT, DARK])
    def test_text_and_lines_stand_out(self, theme):
        for ground in ("page", "panel"):
            assert all(self.contrast(theme[name], theme[ground]) >= 4.5 for name in ("ink", "quiet", "link"))
            assert all(self.contrast(colour, theme[ground]) >= 3.0 for colour in (*COLOURS, RED))
        assert all(self.contrast(theme[name], theme["on-badge"]) >= 4.5 for name in ("pass", "fail", "unproven", "quiet"))


class TestKeptGrids:
    def test_a_page_from_json_is_the_page_from_memory(self, failing, fail_page, tmp_path):
        verdict, grids = failing
        path = tmp_path / "v.json"
        path.write_text(replace(verdict, grids=grids_to_json(grids)).dumps())
        kept = report(path)
        strip = lambda text: re.sub(r'(base64,)[^"]*|d="[^"]*"', "", text)  # noqa: E731 (the figures keep 11 bits)
        assert Page(kept).problems == [] and red_pixels(kept, "t1-1a") == red_pixels(fail_page, "t1-1a")
        assert re.sub(r"\d+", "", strip(Page(kept).text())) == re.sub(r"\d+", "", strip(Page(fail_page).text()))

    def test_a_verdict_without_grids_has_no_such_field(self, passing):
        assert "grids" not in passing[0].to_json() and Verdict.loads(passing[0].dumps()) == passing[0]


class TestCommand:
    def verdict(self, tmp_path, **more):
        path = tmp_path / "v.json"
        path.write_text(pages.verdict(PASS, (pages.entry(0, "d-xl"),), **more).dumps())
        return path

    def test_compare_then_report(self, tmp_path, capsys):
        arguments = ["compare", "--stage", "U", "--a", "mmq", "--b", "w11", "--prompt", "prose", "--layer", "0", "--threads", "2"]
        kept, direct, page = (tmp_path / name for name in ("v.json", "direct.html", "page.html"))
        assert run([*arguments, "--json", str(kept), "--grids", "--html", str(direct)]) == 0
        assert run(["report", str(kept), "-o", str(page)]) == 0
        capsys.readouterr()
        for path in (direct, page):
            found = Page(path.read_text())
            assert found.problems == [] and "Error over bound of a" in found.text()
            assert "$ edge0verify compare --stage U --a mmq" in found.text()
        assert not list(tmp_path.glob(".*"))
        assert len(kept.read_bytes()) < 100_000

    def test_grids_without_json_are_refused(self, capsys):
        assert run(["compare", "--stage", "U", "--a", "mmq", "--b", "w11", "--grids"]) == 2
        assert "--grids: expected with --json" in capsys.readouterr().err

    def test_exit_0_whatever_the_verdict(self, tmp_path, capsys):
        path = tmp_path / "v.json"
        path.write_text(pages.many(2).dumps())
        assert run(["report", str(path), "-o", "-"]) == 0
        assert capsys.readouterr().out.startswith("<!DOCTYPE html>")

    def test_a_folder_that_is_not_there(self, tmp_path, capsys):
        assert run(["report", str(self.verdict(tmp_path)), "-o", str(tmp_path / "no" / "r.html")]) == 2
        assert "expected a file that can be written" in capsys.readouterr().err

    def test_a_target_that_cannot_be_written_is_refused_before_the_work(self, tmp_path, capsys):
        arguments = ["compare", "--stage", "U", "--a", "mmq", "--b", "w11", "--prompt", "long"]
        assert run([*arguments, "--html", str(tmp_path / "no" / "r.html")]) == 2
        said = capsys.readouterr()
        assert "expected a file that can be written" in said.err and not said.out

    def test_the_page_is_ascii(self, tmp_path):
        assert verdict_html(pages.verdict(PASS, (pages.entry(0, "d-xl"),), a="größer-漢字")).isascii()

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda v: v.update(schema="other/1"), "schema: expected"),
            (lambda v: v.pop("layers"), "layers: expected a value"),
            (lambda v: v.update(top8={"max_move": 1}), "top8: positions: expected a value"),
            (lambda v: v.update(totals={"notes": "x"}), "totals: notes: expected array"),
            (lambda v: v.update(environment={"command": 3}), "environment: command: expected string"),
            (lambda v: v["layers"][0].update(equal=2000), "layers[0].equal: expected at most n"),
            (lambda v: v["layers"][0].update(n=10**400, equal=10**400), "layers[0].equal: expected at most n"),
            (lambda v: v["layers"][0].update(equal_pct=float("nan")), "layers[0].equal_pct: expected 0 to 100"),
            (lambda v: v["layers"].append(v["layers"][0]), "expected each entry once"),
            (lambda v: v.update(grids=[{"layer": 0}]), "grids[0]: tensor: expected a value"),
        ],
    )
    def test_a_damaged_verdict_is_one_line_and_exit_2(self, tmp_path, capsys, change, said):
        path = self.verdict(tmp_path)
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))
        assert run(["report", str(path), "-o", str(tmp_path / "r.html")]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and said in error and str(path) in error and not (tmp_path / "r.html").exists()

    @pytest.mark.parametrize(
        "raw", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"<html>", b"SQLite format 3\x00 and no more", b"null"]
    )
    def test_other_files_are_one_line_and_exit_2(self, tmp_path, capsys, raw):
        path = tmp_path / "v.json"
        path.write_bytes(raw)
        assert run(["report", str(path), "-o", str(tmp_path / "r.html")]) == 2
        assert capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "r.html").exists()
        assert run(["report", str(tmp_path / "none.json"), "-o", "-"]) == 2
