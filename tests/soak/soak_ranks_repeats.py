"""Tests of ``make test`` that have to hold again and again: interrupts of hung cells, two notebooks
at once, a full disk, and docs/errors.md provoked from beginning to end on a busy machine.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import test_kernel
import test_poor_machines
from soak_ranks_common import busy, count, report
from test_kernel import kernels  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 1.0  # until an interrupted kernel is idle again; on a machine with nothing else to do


def again_and_again(name: str, times: int, test: Callable[[int], object]) -> list:
    told: list = []
    try:
        for number in range(times):
            told.append(test(number))
    finally:
        report(name, right=len(told), wanted=times, told=told)
    return told


def test_a_machine_that_lacks_everything(tmp_path_factory: pytest.TempPathFactory):
    test = test_poor_machines.test_little_room_few_files_and_four_threads_at_once
    again_and_again("poor_machine", count(20), lambda _: test(tmp_path_factory.mktemp("disk")))


def test_two_notebooks_at_once(kernels):  # noqa: F811
    test = test_kernel.test_two_notebooks_at_once
    again_and_again("two_notebooks", count(20), lambda _: test(kernels))


@pytest.mark.timeout(1800)
def test_an_interrupt_gives_the_prompt_back(kernels, tmp_path: Path):  # noqa: F811
    notebook = kernels.some(1)[0]
    test = test_kernel.interrupt_a_hung_cell
    seconds = again_and_again("interrupt", count(20), lambda n: test(notebook, tmp_path / str(n)))
    assert max(seconds) <= SECONDS


@pytest.mark.timeout(3600)
def test_every_error_says_the_same_again():
    """As often as every tenth COUNT: 5 times if it is not given."""
    command = [sys.executable, str(ROOT / "tools" / "errors_gallery.py"), "--check"]

    def provoked(_: int) -> None:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr

    with busy():
        again_and_again("ranks_gallery", max(1, count(50) // 10), provoked)
