"""Lessons in a real JupyterLab, as a learner has them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
import zoo

from course_check.copies.folders import Folders
from course_lib import draw
from course_lib.__main__ import main as run_command

ROOT = Path(__file__).resolve().parents[1]
COURSE = Folders(ROOT)
SOURCES = sorted(COURSE.sources.glob("*.py"))

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(400)]

# What JupyterLab itself knows about the notebook that is open.
PANEL = "window.jupyterapp.shell.currentWidget"
HERE = f"{PANEL}.context"
CELLS = f"{PANEL}.content.widgets.map(w => w.model)"
LOADED = f"""() => {{
    const panel = window.jupyterapp?.shell?.currentWidget;
    const session = panel?.sessionContext?.session;
    return session?.kernel?.status === 'idle' && {CELLS}.length > 0;
}}"""
SHUT_DOWN = "() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()"
# The command ends at the first error, also one that is allowed, while the kernel goes on with the
# cells that it has been sent. So afterwards something is executed that stands behind them all.
LISTEN = """() => window.jupyterapp.commands.commandExecuted.connect((_, command) => {
    if (command.id === 'notebook:run-all-cells') {
        const ended = () => { window.ranAll = true; };
        command.result.then(ended, ended);
    }
})"""
BEHIND = """() => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    kernel.requestExecute({code: '', silent: true}).done.finally(() => { window.allDone = true; });
}"""


@contextmanager
def opened(browser, address: str) -> Iterator:
    """The page of a notebook whose kernel is ready; its kernel ends with it."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    try:
        page.set_default_timeout(60_000)
        page.goto(address)
        page.wait_for_function(LOADED)
        yield page
        page.evaluate(SHUT_DOWN)
    finally:
        page.close()


def run_all(page, seconds: float) -> tuple[list[dict], int]:
    """Click Run → Run All Cells, and wait until that has ended.

    Returns the cells as they are in the page, and how many pictures the page shows.
    """
    page.evaluate("window.ranAll = window.allDone = false")
    page.evaluate(LISTEN)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.wait_for_function("window.ranAll", timeout=seconds * 1000)
    page.evaluate(BEHIND)
    page.wait_for_function("window.allDone", timeout=seconds * 1000)
    pictures = page.locator(".jp-OutputArea-output img").count()
    return page.evaluate(f"() => {CELLS}.map(m => m.sharedModel.toJSON())"), pictures


def only_what_nobody_has_written_fails(cells: list[dict]) -> None:
    """All cells of an untouched copy were executed; the exercises say in one line why they fail."""
    code = [cell for cell in cells if cell["cell_type"] == "code" and cell["source"]]
    assert not [cell["id"] for cell in code if cell["execution_count"] is None], "not reached"
    ends = [(cell, cell["outputs"][-1]) for cell in code if cell["outputs"]]
    failing = [(c, end) for c, end in ends if end["output_type"] == "error"]
    assert not [c["id"] for c, _ in failing if "exercise" not in c["metadata"]], "the story fails"
    assert not [c["id"] for c, end in failing if "not written yet" not in end["evalue"]]
    checks = {c["metadata"]["exercise"] for c, _ in failing if c["metadata"]["role"] == "check"}
    assert checks == {c["metadata"]["exercise"] for c in code if "exercise" in c["metadata"]}


def test_run_all_in_an_untouched_copy_reaches_the_last_cell(browser, jupyterlab, tmp_path: Path):
    # The lesson that takes the least time; the others: tests/soak.
    run_an_untouched_copy(SOURCES[1], browser, jupyterlab, tmp_path)


def run_an_untouched_copy(source: Path, browser, jupyterlab, tmp_path: Path) -> None:
    """In a real JupyterLab: the ranks' output and the pictures are in the page."""
    copy = Path(shutil.copy(COURSE.learner / f"{source.stem}.ipynb", tmp_path))
    with opened(browser, jupyterlab(copy)) as page:
        cells, pictures = run_all(page, seconds=300)

    only_what_nobody_has_written_fails(cells)
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert any(output["output_type"] == "stream" for output in outputs), "ranks print"
    assert pictures > 0


def test_the_map_leads_to_a_lesson_and_shows_what_was_solved_there(
    browser, jupyterlab, tmp_path: Path, monkeypatch
):
    shutil.copytree(COURSE.learner, tmp_path / "notebooks", ignore=shutil.ignore_patterns("s*"))
    monkeypatch.chdir(tmp_path)
    assert run_command(["update", "--missing"]) == 0
    copy = tmp_path / "work" / "00_hello_ranks.ipynb"
    notebook = nbformat.read(copy, as_version=4)
    title, setup = notebook.cells[0], next(c for c in notebook.cells if "import torch" in c.source)
    answer, check = (c for c in notebook.cells if c.metadata.get("role") in ("answer", "check"))
    answer.source = zoo.source("my_share", "by_divmod")
    notebook.cells = [title, setup, answer, check]
    nbformat.write(notebook, copy)
    second = nbformat.read(tmp_path / "work" / "01_point_to_point.ipynb", as_version=4)
    goal = next(cell.id for cell in second.cells if "## Your turn: pass_right" in cell.source)

    with opened(browser, jupyterlab(tmp_path / "work" / "map.ipynb")) as page:
        table = page.locator(".jp-RenderedMarkdown table")
        table.get_by_text("○\N{NO-BREAK SPACE}my_share").wait_for()
        assert not page.evaluate(f"{HERE}.model.dirty"), "there is nothing to save"
        table.get_by_role("link", name=title.source.partition("\n")[0].removeprefix("# ")).click()
        page.wait_for_function(f"{HERE}.path.endsWith('work/{copy.name}')")
        page.wait_for_function(LOADED)
        run_all(page, seconds=200)
        page.evaluate(SHUT_DOWN)

        page.get_by_role("tab", name="map.ipynb").click()
        page.wait_for_function(LOADED)
        run_all(page, seconds=60)
        table.get_by_text("●\N{NO-BREAK SPACE}my_share").wait_for()
        table.get_by_role("link", name="pass_right").click()
        page.wait_for_function(f"{HERE}.path.endsWith('work/01_point_to_point.ipynb')")
        page.wait_for_function(LOADED)
        cell = f"{PANEL}.content.widgets.find(w => w.model.id === '{goal}')"
        page.wait_for_function(f"Math.abs({cell}.node.getBoundingClientRect().top - 250) < 250")
        page.evaluate(SHUT_DOWN)
        page.get_by_role("tab", name="map.ipynb").click()


STEPPERS = """\
from course_lib import Run, Span, Trace, draw
draw.steps([[[1], [2]], [[3], [2]], [[3], [3]]], caption="A film of two steps.")
---
spans = [Span(0, "forward", 0.0, 1.0), Span(1, "backward", 1.0, 3.0)]
draw.steps(Run([None] * 2, Trace([], spans), 3.0, 2, "simulated"), caption="A run of two moments.")
"""


def test_a_stepper_plays_pauses_and_steps_by_mouse_and_keyboard(
    browser, jupyterlab, tmp_path: Path
):
    """In a real JupyterLab; before anything has run, the stored output, whose scripts JupyterLab
    does not trust, is the whole picture."""
    cells = [nbformat.v4.new_code_cell(text.strip()) for text in STEPPERS.split("---")]
    stored = {"text/html": draw.steps([[[1]], [[2]]]).player}
    cells[0].outputs = [nbformat.v4.new_output("display_data", stored)]
    kernel = {"name": "python3", "display_name": "Python 3"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, tmp_path / "steps.ipynb")

    with opened(browser, jupyterlab(tmp_path / "steps.ipynb")) as page:
        image = page.locator("figure img")
        image.wait_for()
        assert image.evaluate("i => i.complete && i.naturalWidth > 0")
        assert page.get_by_role("button", name="Step forward").count() == 0

        run_all(page, seconds=60)
        film, run = (page.locator("figure.course-steps").nth(k) for k in range(2))
        is_at(film, "start")
        film.get_by_role("button", name="Step forward").click()
        is_at(film, "step 1 of 2")
        page.keyboard.press("ArrowRight")
        is_at(film, "step 2 of 2")
        film.get_by_role("slider").fill("1")
        is_at(film, "step 1 of 2")
        film.get_by_role("button", name="Step back").click()

        film.get_by_role("button", name="Play").focus()
        page.keyboard.press("Enter")
        is_at(film, "step 1 of 2")
        page.keyboard.press("Enter")  # the same button says Pause now
        is_at(run, "0 s: rank 0: forward begins")
        run.get_by_role("button", name="Play").click()
        is_at(run, "1 s: rank 1: backward begins")  # as much later as another step of the film
        is_at(film, "step 1 of 2")
        film.get_by_role("button", name="Play").wait_for()
        mode = page.evaluate("() => window.jupyterapp.shell.currentWidget.content.mode")
        assert mode == "command", "a key for the stepper is none for JupyterLab"

        page.emulate_media(media="print")
        assert film.get_by_role("button").count() == 0
        shown = film.locator("img").bounding_box()
        assert shown["width"] > 100 and shown["x"] >= film.bounding_box()["x"]


def is_at(stepper, title: str) -> None:
    stepper.locator("output", has_text=re.compile(f"^{re.escape(title)}$")).wait_for()
