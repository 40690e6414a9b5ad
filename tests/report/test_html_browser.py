"""The page in Debian's chromium: nothing wider than a phone, no request, light and dark, by keys alone."""

import numpy as np
import pytest

from edge0verify.nightly.history import History
from edge0verify.report.html import nightly_html, verdict_html
from edge0verify.report.html_style import DARK, LIGHT
from tests.report import chromium, pages
from tests.report.test_html_nights import CELLS, add, failed, passed

pytestmark = pytest.mark.skipif(chromium.found() is None, reason="not run: chromium is not installed (apt-get install chromium)")

TOO_WIDE = """(() => {
  const all = [...document.querySelectorAll('body *')], wide = document.documentElement.clientWidth;
  const inside = e => e.parentElement && e.parentElement.closest('.scroll, svg, .skip');
  return [document.documentElement.scrollWidth > wide ? 'the page: ' + document.documentElement.scrollWidth : null,
    ...all.filter(e => !inside(e) && !e.matches('.skip') && e.getClientRects().length)
      .filter(e => { const r = e.getBoundingClientRect(); return r.right > wide + 0.5 || r.left < -0.5; })
      .map(e => e.tagName + ' ' + e.className + ' ' + e.getBoundingClientRect().right)].filter(Boolean).slice(0, 5);
})()"""
SMALL_TEXT = """[...document.querySelectorAll('figure svg text')].filter(e => e.getClientRects().length)
  .map(e => [e, e.ownerSVGElement])
  .map(([e, s]) => parseFloat(getComputedStyle(e).fontSize) * s.getBoundingClientRect().width / s.viewBox.baseVal.width)
  .reduce((a, b) => Math.min(a, b), 99)"""
CUT_TEXT = """[...document.querySelectorAll('figure svg')].filter(s => s.getClientRects().length).flatMap(s => {
  const f = s.getBoundingClientRect();
  return [...s.querySelectorAll('text')].filter(t => { const r = t.getBoundingClientRect();
    return r.left < f.left - 2 || r.right > f.right + 2 || r.top < f.top - 2 || r.bottom > f.bottom + 2; })
    .map(t => s.getAttribute('aria-label').slice(0, 40) + ': ' + t.textContent); }).slice(0, 5)"""
NAMES = ("pass", "fail", "unwritten", "many", "hostile", "empty", "nights")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium.Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Every kind of page, by name."""
    folder = tmp_path_factory.mktemp("pages")
    with History(folder / "h.db") as history:
        for i in range(20):
            add(history, [passed(c, max_rel_l2=1e-3 + i * 1e-5) for c, _ in CELLS], commit=f"{i // 3 + 1:07x}" + "0" * 33)
        add(history, [failed(CELLS[0][0]), passed(CELLS[1][0])], end="FAIL", commit="f" * 40)
    texts = {
        "pass": verdict_html(*pages.real()),
        "fail": verdict_html(*pages.real(fault="row-tiles-swapped")),
        "unwritten": verdict_html(*pages.real("U", fault="skip-last-row-tile")),
        "many": verdict_html(pages.many(60)),
        "hostile": verdict_html(pages.hostile()),
        "empty": verdict_html(pages.empty()),
        "nights": nightly_html(folder / "h.db"),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text)
    return {name: folder / f"{name}.html" for name in texts}


@pytest.mark.parametrize("name", NAMES)
def test_a_phone_shows_it_whole_and_asks_for_nothing(browser, made, name):
    for width in (360, 320):
        browser.open(made[name], width=width)
        browser.value("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert browser.value(TOO_WIDE) == [], (name, width)
    assert browser.value(CUT_TEXT) == [] and browser.value(SMALL_TEXT) > 7.5
    assert browser.asked() == [] and browser.complaints() == []


def test_it_follows_light_and_dark(browser, made, tmp_path):
    import matplotlib.image as image

    for dark, theme in ((False, LIGHT), (True, DARK)):
        browser.open(made["fail"], width=1280, dark=dark)
        assert browser.value(TOO_WIDE) == []
        seen = [browser.value(f"getComputedStyle(document.body).{what}") for what in ("backgroundColor", "color")]
        wanted = [f"rgb({int(c[1:3], 16)}, {int(c[3:5], 16)}, {int(c[5:7], 16)})" for c in (theme["page"], theme["ink"])]
        assert seen == wanted
        ink = browser.value("getComputedStyle(document.querySelector('figure svg text')).fill")
        assert ink == wanted[1]
        path = tmp_path / f"{'dark' if dark else 'light'}.png"
        browser.picture(path, whole=False)
        pixels = image.imread(path)[..., :3]
        assert (pixels.mean() < 0.3) == dark and np.unique(pixels.reshape(-1, 3), axis=0).shape[0] > 100


def test_the_keyboard_reaches_everything(browser, made):
    browser.open(made["fail"], width=360)
    browser.call("Page.bringToFront")
    browser.key("Tab", 9)
    assert browser.value("document.activeElement.className") == "skip"
    where = browser.value("document.activeElement.getBoundingClientRect().left")
    assert 0 <= where < 360
    shown = "[...document.querySelectorAll('a, summary, .scroll')].filter(e => e.getClientRects().length)"
    browser.value(f"window.waiting = new Set({shown}); window.waiting.delete(document.activeElement)")
    for _ in range(browser.value("window.waiting.size")):
        browser.key("Tab", 9)
        browser.value("window.waiting.delete(document.activeElement)")
    assert browser.value("[...window.waiting].map(e => e.tagName + ' ' + e.textContent.slice(0, 40))") == []
    browser.value("document.querySelector('details:not([open]) > summary').focus()")
    assert browser.value("getComputedStyle(document.activeElement).outlineStyle") != "none"
    browser.value("window.one = document.activeElement.parentElement")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key=" ", code="Space", text=" ", windowsVirtualKeyCode=32)
    browser.call("Input.dispatchKeyEvent", type="keyUp", key=" ", code="Space", windowsVirtualKeyCode=32)
    assert browser.value("window.one.open") is True


def test_the_last_night_is_what_a_phone_shows_first(browser, made):
    browser.open(made["nights"], width=360)
    right = "getBoundingClientRect().right"
    ends = browser.value(f"[...document.querySelectorAll('.late')].map(b => b.lastElementChild.{right} - b.{right})")
    assert ends and all(abs(end) < 3 for end in ends)
    wide = browser.value("[...document.querySelectorAll('.late')].map(b => b.scrollWidth - b.clientWidth)")
    assert max(wide) > 50


class TestTheMeasures:
    """They must be able to fail."""

    def test_what_is_too_wide_is_seen(self, browser, tmp_path):
        path = tmp_path / "wide.html"
        path.write_text('<!DOCTYPE html><meta name="viewport" content="width=device-width"><body><p style="width:500px">x</p>')
        browser.open(path, width=360)
        assert any("P" in text for text in browser.value(TOO_WIDE))

    def test_a_request_is_seen(self, browser, tmp_path):
        path = tmp_path / "asks.html"
        path.write_text('<!DOCTYPE html><body><img src="http://127.0.0.1:9/x.png">')
        browser.open(path, width=360)
        assert browser.asked() == ["http://127.0.0.1:9/x.png"]

    def test_the_policy_stops_a_request_and_a_script(self, browser, made, tmp_path):
        """Even if a name had become markup."""
        path = tmp_path / "page.html"
        planted = '<main><img src="http://127.0.0.1:9/x.png"><script>document.title = "ran"</script>'
        path.write_text(made["empty"].read_text().replace("<main", planted + "<main", 1))
        browser.open(path, width=360)
        assert browser.asked() == [] or all("blocked" in text or "Content Security" in text for text in browser.complaints())
        assert browser.value("document.title") != "ran" and browser.complaints()

    def test_cut_text_is_seen(self, browser, tmp_path):
        path = tmp_path / "cut.html"
        drawing = '<svg aria-label="x" viewBox="0 0 100 50" width="100"><text x="80" y="20">a long name</text></svg>'
        path.write_text(f"<!DOCTYPE html><body><figure>{drawing}</figure>")
        browser.open(path, width=360)
        assert browser.value(CUT_TEXT) == ["x: a long name"]
