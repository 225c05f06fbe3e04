"""Every lesson again and again with both cores busy, and every untouched copy in a browser."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import nbformat
import pytest
from soak_ranks_common import busy, count, median, report
from test_browser_lessons import (
    only_what_nobody_has_written_fails,
    opened,
    run_all,
    run_an_untouched_copy,
)
from test_lessons import COURSE, SOURCES, compare_by_nbval, each_lesson
from test_wheel import LESSONS, Place


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
            green=len(seconds),
            wanted=count(20),
            seconds={"median": median(seconds), "slowest": round(max(seconds, default=0.0), 1)},
        )


@each_lesson
def test_run_all_in_an_untouched_copy(source: Path, browser, jupyterlab, tmp_path: Path):
    run_an_untouched_copy(source, browser, jupyterlab, tmp_path)


def test_a_copy_that_stops_is_seen(browser, jupyterlab, tmp_path: Path):
    copy = shutil.copy(COURSE.learner / f"{SOURCES[1].stem}.ipynb", tmp_path)
    notebook = nbformat.read(copy, as_version=4)
    for cell in notebook.cells:
        cell.metadata.pop("tags", None)
    nbformat.write(notebook, copy)
    with opened(browser, jupyterlab(Path(copy))) as page:
        cells, _ = run_all(page, seconds=300)
    with pytest.raises(AssertionError, match="not reached"):
        only_what_nobody_has_written_fails(cells)


def test_every_learners_notebook_runs_alone_to_its_last_cell(wheel: Path, tmp_path: Path):
    place = Place(tmp_path, wheel)
    seconds = {}
    for notebook in LESSONS:
        start = time.perf_counter()
        only_what_nobody_has_written_fails(place.execute(notebook))
        seconds[notebook.stem] = round(time.perf_counter() - start, 1)
    report("notebooks-alone", lessons=len(LESSONS), seconds=seconds)
