"""A helper in a cell of the learner's own, which grading leaves out: check says so, in a kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kernels import Kernel

pytestmark = pytest.mark.slow
HELPER = "def halves(n, k):\n    return divmod(n, k)\n"
ANSWER = """
def my_share(n_items):
    rank = dist.get_rank()
    size, extra = {call}
    start = rank * size + min(rank, extra)
    return range(start, start + size + (rank < extra))
"""
BY_HELPER = ANSWER.format(call="halves(n_items, dist.get_world_size())")
SAID = "comes from another cell of yours: grading runs the answer's cell alone."


@pytest.fixture(scope="module")
def notebook() -> Iterator[Kernel]:
    one = Kernel()
    one.cell("import torch.distributed as dist\nfrom course_lib import check", "00-install")
    yield one
    one.close()


def test_a_helper_in_another_cell_is_named_under_a_full_verdict(notebook: Kernel) -> None:
    notebook.cell("from course_check import own_cells; own_cells._cells.clear()", "00-install")
    notebook.cell(HELPER, "my_share-try")
    notebook.cell(BY_HELPER, "my_share-answer")
    verdict, _ = notebook.cell("check(my_share)", "my_share-check")
    assert verdict.startswith("00.1 my_share: passed")
    assert f"halves {SAID}" in " ".join(verdict.split())


@pytest.mark.parametrize("id", ["00-9b87ca", None])
def test_what_a_lesson_gives_or_a_front_end_does_not_name_is_not_named(
    notebook: Kernel, id: str | None
) -> None:
    notebook.cell("from course_check import own_cells; own_cells._cells.clear()", "00-install")
    notebook.cell(HELPER, id)
    notebook.cell(BY_HELPER, "my_share-answer")
    verdict, _ = notebook.cell("check(my_share)", "my_share-check")
    assert verdict.startswith("00.1 my_share: passed")
    assert "cell of yours" not in verdict
