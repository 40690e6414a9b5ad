"""The page of a history of nightlies, read from the file that the nightly writes."""

import re
import sqlite3

import pytest

from edge0verify.cli.main import run
from edge0verify.nightly.history import History, Result, Run
from edge0verify.records.errors import InputError
from edge0verify.report import html_nights
from edge0verify.report.html import nightly_html
from edge0verify.report.html_nights import read_nights
from tests.report import pages
from tests.report.html_reader import Page

CELLS = [(f"pair/embedded/{prompt}/D/mmq-w11/cpu", {}) for prompt in ("prose", "code", "list")] + [("golden/d-prose", {})]


def night(commit: str | None = "a" * 40, *, dirty: bool = False, machine=None) -> Run:
    hashes = dict(binary_sha256="b" * 64, kernels_sha256="c" * 64, config_sha256="d" * 64)
    config = {"path": "/srv/my nightly.toml", "text": "[[pairs]]\n"}
    started = "2026-03-01T02:00:00.000+00:00"
    return Run(
        run=0, started=started, commit=commit, dirty=dirty, config=config, machine=machine or {"cpu": {"cores": 2}}, **hashes
    )


def add(history: History, results, *, end: str | None = "PASS", cells=CELLS, **more) -> int:
    number = history.begin(night(**more), cells)
    for result in results:
        history.add_result(number, result)
    if end:
        history.finish(number, end, 0)
    return number


def passed(cell: str, **metrics: float) -> Result:
    return Result(cell=cell, status="PASS", exit_code=0, metrics={"equal_pct": 99.5, "max_rel_l2": 1e-3, **metrics}, wall_s=1.25)


def failed(cell: str, **more) -> Result:
    bad = pages.verdict("FAIL", (pages.entry(4, "d-xl", status="FAIL", reasons=("layer 4 d-xl: wrong",)),))
    return Result(
        cell=cell, status="FAIL", exit_code=1, reasons=("layer 4 d-xl: wrong",), verdict=bad.to_json(), dump="/x/a.h5", **more
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.db"


def test_the_last_night_comes_first_then_the_trend(path):
    names = [cell for cell, _ in CELLS]
    with History(path) as history:
        add(history, [passed(c) for c in names])
        add(history, [passed(c, max_rel_l2=2e-3) for c in names], commit="e" * 40, dirty=True)
        base = {"commit": "a" * 40, "status": "FAIL", "not_this_change": True, "text": "not this change"}
        add(history, [failed(names[0], base=base), *(passed(c, max_rel_l2=2e-3) for c in names[1:3])], end="FAIL", commit="f" * 40)
    page = Page(nightly_html(path))
    text = page.text()
    assert page.problems == []
    assert text.index("A cell does not pass") < text.index("Over the nights")
    assert f"{names[0]} : not this change: layer 4 d-xl: wrong" in text and "golden/d-prose : no result" in text
    assert "2 PASS, 1 FAIL, 1 without a result" in text and f"{names[0]} PASS to FAIL" in text and "Dump: /x/a.h5" in text
    assert re.search(r"1 2026-03-01 02:00 aaaaaaaaaa . PASS 4 0 0 0 0", text)
    assert "eeeeeee+" in text and "eeeeeeeeee + changes" in text and "fffffff" in text
    assert (
        "Largest relative L2 of a - b, of 4 cells; 4 moved." in text
        and "Share of elements that differ, of 4 cells; none moved." in text
    )
    assert "$ edge0verify nightly '/srv/my nightly.toml'" in text


def test_all_passed(path):
    with History(path) as history:
        add(history, [passed(c) for c, _ in CELLS])
    page = Page(nightly_html(path))
    assert page.problems == [] and "Every planned cell was compared and passed." in page.text()
    assert "What does not pass" not in page.text()


def test_a_night_that_did_not_end_is_no_pass(path):
    with History(path) as history:
        add(history, [passed(CELLS[0][0])], end=None)
    page = Page(nightly_html(path))
    assert page.problems == []
    assert "INCONCLUSIVE: Nightly 1" in page.text() and "1 of 4 cells have a result" in page.text()


def test_no_night_at_all(path):
    History(path).close()
    page = Page(nightly_html(path))
    assert page.problems == [] and "holds no nightly yet" in page.text() and "INCONCLUSIVE" in page.text()


def test_skipped_broken_and_refused_cells_are_told_apart(path):
    results = [
        Result(cell=CELLS[0][0], status="INCONCLUSIVE", exit_code=3, reasons=("skipped: no device cuda:0",)),
        Result(cell=CELLS[1][0], status="INPUT", exit_code=2, reasons=("bad prompt",)),
        Result(cell=CELLS[2][0], status="INTERNAL", exit_code=70, reasons=("ended by signal 11",), metrics={"max_rel_l2": "nan"}),
    ]
    with History(path) as history:
        add(history, results, end="INTERNAL")
    page = Page(nightly_html(path))
    order = [page.text().index(t) for t in ("ended by signal 11", "bad prompt", "skipped: no device cuda:0")]
    assert page.problems == [] and order == sorted(order)


def test_hostile_names_and_metrics(path):
    name = pages.HOSTILE.encode("utf-8", "replace").decode()  # SQLite takes no half of a surrogate pair, JSON does
    metrics = {"max_rel_l2": "inf", "equal_pct": 120.0, pages.HOSTILE: 1.0}
    words = dict(reasons=(pages.HOSTILE,), remarks=(pages.HOSTILE,), verdict={"schema": 1})
    with History(path) as history:
        add(
            history,
            [Result(cell=name, status="FAIL", exit_code=1, metrics=metrics, **words)],
            end="FAIL",
            commit="<b>",
            machine={pages.HOSTILE: pages.HOSTILE},
        )
    page = Page(nightly_html(path))
    assert page.problems == [] and "cannot be shown" in page.text()


def test_many_nights_show_the_last_ones(path, monkeypatch):
    monkeypatch.setattr(html_nights, "MOST", 20)
    with History(path) as history:
        for i in range(25):
            add(history, [passed(c, max_rel_l2=1e-3 + i * 1e-5) for c, _ in CELLS], commit=f"{i // 3:040x}")
    page = Page(nightly_html(path))
    assert page.problems == [] and "The last 20 of 25 nights." in page.text() and "Nights with their commits (20)" in page.text()


def test_beside_a_verdict(path, tmp_path, capsys):
    with History(path) as history:
        add(history, [passed(c) for c, _ in CELLS])
    verdict = tmp_path / "v.json"
    verdict.write_text(pages.verdict("PASS", (pages.entry(0, "d-xl"),)).dumps())
    assert run(["report", str(verdict), "--nights", str(path), "-o", str(tmp_path / "r.html")]) == 0
    page = Page((tmp_path / "r.html").read_text())
    assert page.problems == [] and "Over the nights" in page.text() and "Ladder of layers" in page.text()
    assert run(["report", str(path), "-o", str(tmp_path / "n.html")]) == 0
    assert run(["report", str(path), "--nights", str(path), "-o", str(tmp_path / "n.html")]) == 2


def test_reading_changes_nothing(path):
    with History(path) as history:
        add(history, [passed(c) for c, _ in CELLS])
    before = path.read_bytes()
    read_nights(path)
    assert path.read_bytes() == before and [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_history_that_is_being_written_is_read(path):
    with History(path) as history:
        add(history, [passed(CELLS[0][0])], end=None)
        assert len(read_nights(path).runs[0].results) == 1
        history.add_result(1, passed(CELLS[1][0]))
        assert len(read_nights(path).runs[0].results) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda db: db.execute("drop table meta"),
        lambda db: (db.execute("drop trigger meta_update"), db.execute("update meta set value = 'other/9'")),
        lambda db: db.execute("drop table results"),
        lambda db: (db.execute("drop trigger runs_update"), db.execute("update runs set machine = '{'")),
        lambda db: (db.execute("drop trigger results_update"), db.execute("update results set metrics = '[1]'")),
        lambda db: (db.execute("drop trigger results_update"), db.execute("update results set status = 'FAIL', verdict = x'00'")),
    ],
)
def test_a_damaged_history_is_one_line_and_exit_2(path, damage, capsys):
    with History(path) as history:
        add(history, [passed(c) for c, _ in CELLS])
    db = sqlite3.connect(path)
    damage(db)
    db.commit()
    db.close()
    assert run(["report", str(path), "-o", str(path.parent / "r.html")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and str(path) in error and not (path.parent / "r.html").exists()


@pytest.mark.parametrize("cut", [16, 100, 5000])
def test_a_cut_history_is_refused(path, cut):
    with History(path) as history:
        add(history, [passed(c) for c, _ in CELLS])
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InputError, match=str(path)):
        read_nights(path)
