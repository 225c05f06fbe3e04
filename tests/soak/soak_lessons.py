"""Every lesson again and again with both cores busy, and every untouched copy in a browser."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from soak_ranks_common import busy, count, median, report
from test_lessons import (
    compare_by_nbval,
    each_lesson,
    failing,
    not_reached,
    opened,
    run_all,
    run_an_untouched_copy,
)
from test_wheel import LESSONS, Place, exercises_in, failed

from course_lib.notebooks.copies import learner_copy, to_text
from course_lib.notebooks.source import parse_lesson

SMALL = '''\
# %% id="00-one"
print("one")

# %% exercise="two" role="answer" points=1 required=true difficulty=1
def two() -> int:
    """Two."""
    ### BEGIN SOLUTION
    answer = 1 + int("1")
    return answer
    ### END SOLUTION

# %% exercise="two" role="check"
def check(answer): answer()
check(two)

# %% id="00-end"
print("the end")
'''


@each_lesson
def test_nbval_is_green_every_time(
    source: Path, installed: Path, tmp_path_factory: pytest.TempPathFactory
):
    seconds: list[float] = []
    try:
        with busy():
            for _ in range(count(20)):
                start = time.perf_counter()
                compare_by_nbval(source, installed, tmp_path_factory.mktemp(source.stem))
                seconds.append(time.perf_counter() - start)
    finally:
        report(
            f"nbval-{source.stem}",
            green=len(seconds), wanted=count(20), seconds={"median": median(seconds),
            "slowest": round(max(seconds, default=0.0), 1)},
        )  # fmt: skip


@each_lesson
def test_run_all_in_an_untouched_copy(source: Path, browser, jupyterlab, tmp_path: Path):
    run_an_untouched_copy(source, browser, jupyterlab, tmp_path)


def test_a_copy_that_stops_is_seen(browser, jupyterlab, tmp_path: Path):
    notebook = learner_copy(parse_lesson(SMALL, "00_small"))
    (tmp_path / "goes_on.ipynb").write_text(to_text(notebook))
    for cell in notebook.cells:
        cell.metadata.pop("tags", None)
    (tmp_path / "stops.ipynb").write_text(to_text(notebook))

    with opened(browser, jupyterlab(tmp_path / "goes_on.ipynb")) as page:
        cells, pictures = run_all(page, seconds=60)
    assert not_reached(cells) == []
    assert [cell["id"] for cell in failing(cells)] == ["two-check"]
    assert pictures == 0

    with opened(browser, jupyterlab(tmp_path / "stops.ipynb")) as page:
        cells, _ = run_all(page, seconds=60)
    assert not_reached(cells) == ["00-end"]


def test_every_learners_notebook_runs_alone_to_its_last_cell(wheel: Path, tmp_path: Path):
    place = Place(tmp_path, wheel)
    seconds = {}
    for notebook in LESSONS:
        start = time.perf_counter()
        cells = place.execute(notebook)
        assert failed(cells) == exercises_in(cells), "each says that it is not written yet"
        seconds[notebook.stem] = round(time.perf_counter() - start, 1)
    report("notebooks-alone", lessons=len(LESSONS), seconds=seconds)
