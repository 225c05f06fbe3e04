"""The pytest plugin that makes nbval a grader. Run as a script, it imports neither torch nor us.

What nbval does                                  and what a grade needs
─────────────────────────────────────────────    ──────────────────────────────────────────────────
reads outcome from outputs                       execute_reply, the kernel's own word
waits the whole timeout for a dead kernel        looks every 0.2 s whether it lives
cells after a timeout become xfail               a new kernel, the answers again, the next exercise
NBVAL_SKIP, raises-exception                     no marker and no tag means anything
skipped and xfailed look harmless in JUnit       both are failures
cells have numbers                               cell and exercise ids, in JUnit properties
no end to it all                                 --grade-seconds in all, --cell-seconds each
outlives the one who started it                  ends at end-of-file of stdin (--end-with-stdin)
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import types
from typing import Any

import pytest

_TICK = 0.2
_ENDING = "--end-with-stdin"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("grading")
    group.addoption("--grade-seconds", type=float, default=600.0)
    group.addoption("--cell-seconds", type=float, default=200.0)
    group.addoption(_ENDING, action="store_true")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_END] = time.monotonic() + config.getoption("--grade-seconds")


def _end_with_stdin(fd: int) -> None:
    """Whoever started this holds the other end. Its kernel looks after itself: it sees us gone."""
    while os.read(fd, 1):
        continue
    os._exit(3)


_END = pytest.StashKey[float]()


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        cell = getattr(item, "cell", None)
        if cell is None:
            continue
        item.name = cell.get("id", item.name)
        for key in ("exercise", "role"):
            if value := cell.metadata.get(key):
                item.user_properties.append((key, str(value)))
        item.user_properties.append(("cell", item.name))
        item.setup = lambda: None  # nbval's own marks what follows a timeout as xfail
        item.runtest = types.MethodType(run_cell, item)


def run_cell(item: Any) -> None:
    """Run one cell; an error reply, a dead kernel and a timeout are failures, nothing else is."""
    file = item.parent
    if getattr(file, "lost", False):
        _again(item)
    seconds = min(item.config.getoption("--cell-seconds"),
                  item.config.stash[_END] - time.monotonic())  # fmt: skip
    if seconds <= 0:
        pytest.fail("the time for this submission is over", pytrace=False)
    trouble = execute(file.kernel, item.cell.source, seconds)
    if trouble.startswith("lost:"):
        file.lost = True
        _stop(file)
    if trouble:
        pytest.fail(trouble, pytrace=False)


def execute(kernel: Any, source: str, seconds: float) -> str:
    """What went wrong, or nothing."""
    asked = kernel.execute_cell_input(source, allow_stdin=False)
    end = time.monotonic() + seconds
    while True:
        try:
            reply = kernel.kc.get_shell_msg(timeout=_TICK)
        except queue.Empty:
            if not kernel.is_alive():
                return "lost: the kernel died"
            if time.monotonic() > end:
                return f"lost: nothing came back within {seconds:.0f} s"
            continue
        if reply["parent_header"].get("msg_id") == asked:
            break
    content = reply["content"]
    if content.get("status") == "ok":
        return ""
    return f"{content.get('ename', content.get('status'))}: {content.get('evalue', '')}"[:500]


def _again(item: Any) -> None:
    """A new kernel, with everything before this cell that is no check."""
    from nbval.kernel import CURRENT_ENV_KERNEL_NAME, RunningKernel

    file = item.parent
    file.kernel = RunningKernel(CURRENT_ENV_KERNEL_NAME, cwd=str(file.path.parent))
    file.lost = False
    for cell in file.nb.cells:
        if cell.id == item.name:
            return
        if cell.cell_type == "code" and cell.metadata.get("role") in ("begin", "answer"):
            trouble = execute(file.kernel, cell.source, 60)
            if trouble:
                pytest.fail(f"after a new start, {cell.id}: {trouble}", pytrace=False)


def _stop(file: Any) -> None:
    try:
        file.kernel.kc.stop_channels()
        file.kernel.km.shutdown_kernel(now=True)
    except Exception as error:  # it may be half gone already
        print(f"while stopping a kernel: {error}", file=sys.stderr)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    """Nothing is skipped and nothing is expected to fail: both count as failed."""
    outcome = yield
    report = outcome.get_result()
    report.nodeid = f"{report.nodeid.rsplit('::', 1)[0]}::{item.name}"
    if report.skipped or hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped or xfailed, which is no way to pass: {report.longrepr}"
        if hasattr(report, "wasxfail"):
            del report.wasxfail


if __name__ == "__main__":
    if _ENDING in sys.argv:  # now: pytest will put something else in stdin's place
        threading.Thread(target=_end_with_stdin, args=(os.dup(0),), daemon=True).start()
    # jsonschema would build a grammar of addresses, for a second, that no notebook is held against.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    sys.exit(pytest.main(sys.argv[1:], plugins=[sys.modules[__name__]]))
