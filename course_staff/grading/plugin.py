"""Turns pytest and nbval, which run a grading notebook, into a grader. No torch, nothing of ours.

No line of a student's runs in that notebook, so nbval may judge its cells as it does. This adds
that nothing passes by being skipped or expected to fail, that a lost kernel costs one exercise,
that JUnit names cells and exercises instead of numbers, that no other process can take a port from
a kernel that starts, and that all of it ends with whoever started it.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from functools import partial
from typing import Any

import pytest

_PR_SET_PDEATHSIG = 1
# Nothing that lies about decides how a notebook is judged: no settings, no plugins of a folder.
_OPTIONS = "-q --color=no -p no:cacheprovider --noconftest -c /dev/null --nbval --nbval-current-env"


def pytest_configure() -> None:
    """Kernels listen in the file system. jupyter_client chooses ports before a kernel has started,
    and one that somebody else has taken by then costs all marks of the submission."""
    from nbval import kernel

    kernel.KernelManager = partial(kernel.KernelManager, transport="ipc")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        item.name = item.cell.id
        item.user_properties += [("cell", item.name), *item.cell.metadata.items()]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    """Start a new kernel where one was lost, and run all cells before this one in it, except
    checks: no exercise costs another its marks."""
    file, cells = item.parent, item.session.items
    if file.kernel is None or (file.kernel.is_alive() and not file.timed_out):
        return
    file.teardown()
    file.setup()
    file.timed_out = False
    for before in cells[: cells.index(item)]:
        if before.cell.metadata.get("role") != "check":
            before.runtest()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    report = yield
    report.nodeid = f"{report.nodeid.rsplit('::', 1)[0]}::{item.name}"
    if report.skipped or hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped or xfailed, which is no way to pass: {report.longrepr}"
        vars(report).pop("wasxfail", None)
    return report


if __name__ == "__main__":
    # Whoever started this may be killed. Its kernel looks after itself: it sees us gone.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # jsonschema would build a grammar of addresses, for a second, that no notebook is held against.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    sys.exit(pytest.main([*_OPTIONS.split(), *sys.argv[1:]], plugins=[sys.modules[__name__]]))
