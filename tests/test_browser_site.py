"""The static site, built once, and looked at in a browser from the disk that it lies on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from course_exercises.catalogue import exercises

ROOT = Path(__file__).resolve().parents[1]
LESSONS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
PHONE, DESKTOP = 390, 1280

pytestmark = [pytest.mark.slow, pytest.mark.browser]


@pytest.fixture(scope="session")  # tests of other modules may come in between
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, ROOT / "tools" / "make_site.py", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert (done.returncode, done.stderr) == (0, "")
    return out


class Targets(HTMLParser):
    """What a page's tags name: ``to`` to follow, ``ids`` to arrive at."""

    def __init__(self) -> None:
        super().__init__()
        self.to: list[str] = []
        self.ids: set[str] = set()
        self.alts: list[str] = []  # what stands for each picture

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.alts.append(dict(attrs).get("alt") or "")
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.to.append(unquote(value))
            elif name == "id" and value:
                self.ids.add(value)


def test_every_link_inside_leads_somewhere_and_nothing_comes_from_elsewhere(site: Path):
    pages = {page: Targets() for page in site.rglob("*.html")}
    for page, targets in pages.items():
        targets.feed(page.read_text(encoding="utf-8"))
    assert {f"lessons/{name}.html" for name in LESSONS} < {str(p.relative_to(site)) for p in pages}
    assert all((site / "learners" / f"{name}.ipynb").exists() for name in LESSONS)
    dead = []
    for page, targets in pages.items():
        for to in targets.to:
            if to.startswith(("http", "data:", "mailto:")):
                continue
            file, _, place = to.partition("#")
            target = (page.parent / file.partition("?")[0]).resolve() if file else page
            known = target not in pages or not place or place in pages[target].ids
            if not target.exists() or not known:
                dead.append(f"{page.relative_to(site)}: {to}")
    assert not dead


def test_every_picture_has_a_text_and_no_solution_stands_open(site: Path):
    for name in LESSONS:
        text = (site / "lessons" / f"{name}.html").read_text(encoding="utf-8")
        page = Targets()
        page.feed(text)
        assert page.alts
        assert [alt for alt in page.alts if len(alt) < 12 or re.fullmatch(r"\S+", alt)] == []
        lesson = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
        answers = [c for c in lesson["cells"] if c["metadata"].get("role") == "answer"]
        assert text.count('<details class="admonition hide above-input"') == len(answers)
        written = "".join("".join(c["source"]) for c in lesson["cells"])
        assert text.count('<div class="math"><math') == written.count("$$") // 2
        # what axe-core calls serious, and the theme leaves out
        assert re.search(r'role="heading">|<pre>|<summary aria-label', text) is None


CLIPPED = """() => [...document.querySelectorAll('pre')]
    .filter(box => box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX != 'auto')
    .map(box => box.textContent.slice(0, 80))"""
FOLDED = """() => [...document.querySelectorAll('.cell_input pre')].filter(box => {
    const line = parseFloat(getComputedStyle(box).lineHeight), style = getComputedStyle(box);
    const room = box.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
    return room > (box.textContent.trimEnd().split('\\n').length + 0.5) * line;
}).map(box => box.textContent.slice(0, 80))"""


def test_no_line_of_code_is_cut_off_and_none_is_folded(site: Path, browser):
    page = browser.new_page()
    clipped: list[tuple] = []
    folded: dict[int, list[str]] = {PHONE: [], DESKTOP: []}
    for file in sorted(site.rglob("*.html")):
        page.goto(f"file://{file}")
        for width, found in folded.items():
            page.set_viewport_size({"width": width, "height": 900})
            clipped += [(file.name, width, line) for line in page.evaluate(CLIPPED)]
            found += page.evaluate(FOLDED)
    page.close()
    assert clipped == []
    assert folded == {PHONE: [], DESKTOP: []}


@pytest.mark.parametrize(("width", "scheme"), [(PHONE, "dark"), (DESKTOP, "light")])
def test_pages_are_whole_in_a_browser_and_ask_no_other_host(site: Path, browser, width, scheme):
    wrong: list[str] = []
    with browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme) as look:
        page = look.new_page()
        page.on(
            "request",
            lambda request: (
                wrong.append(request.url)
                if not request.url.startswith(("file:", "data:"))
                else None
            ),
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        for name in ("index", "glossary", f"lessons/{LESSONS[4]}"):
            page.goto(f"file://{site}/{name}.html")
            page.locator("h1").first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        dark = sum(map(int, re.findall(r"\d+", background)[:3])) < 3 * 128
        assert dark == (scheme == "dark")
    assert wrong == []


def test_the_front_page_is_played_and_searched_by_keyboard(site: Path, browser):
    page = browser.new_page()
    page.goto(f"file://{site}/index.html")
    stepper = page.locator("figure.course-steps")
    step = stepper.locator("output")
    assert step.text_content() == "start"
    for _ in range(60):  # from the top of the page, with Tab alone
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.ariaLabel") == "Step forward":
            break
    page.keyboard.press("Enter")
    stepper.locator("output", has_text=re.compile("^step 1 of")).wait_for()

    page.get_by_role("textbox", name="Search").fill("rendezvous")
    page.keyboard.press("Enter")
    page.locator("#search-results li a", has_text="many processes").first.wait_for()
    page.close()


def test_pipelines_are_chosen_and_stepped_by_keyboard(site: Path, browser):
    assert (site / "pipelines.html").stat().st_size < 1e6
    page = browser.new_page(viewport={"width": PHONE, "height": 900})
    page.goto(f"file://{site}/pipelines.html")
    step = page.locator("figure.course-steps output")
    page.get_by_label("Stages").select_option("3")
    page.get_by_label("Micro-batches").select_option("2")
    assert page.get_by_role("img", name="3 stages, 2 micro-batches").is_visible()
    assert step.text_content() == "0 ms"
    page.get_by_role("slider", name="Step").focus()
    page.keyboard.press("ArrowRight")
    one = "F0 idle idle, alive 1 0 0"
    assert step.text_content() == f"1 ms; GPipe: {one}; 1F1B: {one}"
    page.keyboard.press("End")
    end = "B1 idle idle, alive 0 0 0"
    assert step.text_content() == f"12 ms; GPipe: {end}; 1F1B: {end}"
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    page.close()


def test_what_is_told_of_each_pipeline_is_what_the_formulas_say(site: Path):
    text = (site / "pipelines.html").read_text(encoding="utf-8")
    told = re.findall(r'alt="(\d) stages, (\d) micro-batch(?:es)?\. ([^"]+)"', text)
    sizes = {(int(n), int(m)): said for n, m, said in told}
    assert len(sizes) == 3 * 8
    for (n, m), said in sizes.items():
        idle = (n - 1) / (m + n - 1)
        both = f"takes {3 * (m + n - 1)} ms, idles {idle:.0%} of it, and holds at most"
        assert said == f"GPipe {both} {m} on a stage. 1F1B {both} {min(m, n)} on a stage."


def test_the_map_leads_to_the_goal_of_each_exercise(site: Path):
    links = re.findall(
        r'href="(lessons/\w+)\.html#([\w-]+)">(\w+)</a>', (site / "map.html").read_text()
    )
    assert len(links) == len(exercises())
    for page, place, name in links:
        below = (site / f"{page}.html").read_text().partition(f'id="{place}"')[2]
        above_answer = re.split(rf'<span class="n[cf]">{name}</span>', below)[0]
        assert re.search("Required ·|Optional ·", above_answer), name
