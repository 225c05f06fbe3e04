"""A full disk, little shared memory, two notebooks at once: told, or of no matter, every time."""

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
def test_a_disk_that_takes_nothing(tmp_path_factory: pytest.TempPathFactory):
    test = test_poor_machines.test_a_full_disk_and_little_shared_memory
    again_and_again("full_disk", lambda: test(tmp_path_factory.mktemp("disk")))


def test_two_notebooks_at_once(kernels):  # noqa: F811
    again_and_again("two_notebooks", lambda: test_kernel.test_two_notebooks_at_once(kernels))
