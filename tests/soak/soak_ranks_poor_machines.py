"""A full disk, one that cannot be written, files that may not grow, little shared memory, and two
notebooks at once: told, or of no matter, every time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import test_kernel
import test_poor_machines
from soak_ranks_common import count, report
from test_kernel import kernels  # noqa: F401


def again_and_again(name: str, test: Callable[[], None]) -> None:
    right = 0
    try:
        for _ in range(count(20)):
            test()
            right += 1
    finally:
        report(name, right=right, wanted=count(20))


@test_poor_machines.needs_mounts
@pytest.mark.parametrize(
    "lack", ["a_full_disk_and_little_shared_memory", "a_disk_that_cannot_be_written"]
)
def test_a_disk_that_takes_nothing(lack: str, tmp_path_factory: pytest.TempPathFactory):
    test = getattr(test_poor_machines, f"test_{lack}")
    again_and_again(lack, lambda: test(tmp_path_factory.mktemp("disk")))


def test_files_that_may_not_grow():
    test = test_poor_machines.test_files_that_may_not_grow_are_one_clear_line
    again_and_again("files_that_may_not_grow", test)


def test_two_notebooks_at_once(kernels):  # noqa: F811
    again_and_again("two_notebooks", lambda: test_kernel.test_two_notebooks_at_once(kernels))
