"""Every lesson again and again with both cores busy, and every untouched copy in a browser."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from soak_ranks_common import busy, count, median, report
from test_lessons import compare_by_nbval, each_lesson, run_an_untouched_copy


@each_lesson
def test_nbval_is_green_every_time(source: Path, tmp_path_factory: pytest.TempPathFactory):
    seconds: list[float] = []
    try:
        with busy():
            for _ in range(count(20)):
                start = time.perf_counter()
                compare_by_nbval(source, tmp_path_factory.mktemp(source.stem))
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
