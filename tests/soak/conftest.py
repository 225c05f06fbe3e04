"""Soaks repeat tests of real ranks: those and their helpers are found here, too."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from course_lib.progress_line import ProgressLine

for room in ("course_lib", "course_tools", "course_check"):
    sys.path.append(str(Path(__file__).resolve().parents[1] / room))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """A line in the terminal, if there is one; pytest captures what a soak could write there."""
    capture = item.config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled():
        terminal = os.fdopen(os.dup(1), "w")
    tests = item.session.items
    number = f"soak {tests.index(item) + 1} of {len(tests)}"
    with terminal:
        if not terminal.isatty() or os.environ.get("CI"):
            return (yield)
        with ProgressLine(lambda: f"  {number}, {item.name[:40]}", terminal):
            return (yield)
