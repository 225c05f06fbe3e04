"""What several test modules share: where the course is, a browser, and a JupyterLab to open."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from course_lib.recording import stuck_ranks as standing

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # see nbval_run.py

ROOT = Path(__file__).resolve().parents[1]
IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
BROWSER_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")

# After which a test that stands still is ended, where neither it nor anybody says more.
SECONDS = 180

# Examples are the same each time: `make test` says today what it said yesterday.
hypothesis.settings.register_profile("course", deadline=None, derandomize=True)
hypothesis.settings.load_profile("course")


# What one process runs of these, by the start of a test's path: the tests share what takes long to
# make, as the cases of an exercise, a fork server, kernels, a browser.
TOGETHER = re.compile(
    r"tests/course_exercises/test_zoo.py.*\[\w+|tests/course_staff/\w+"
    r"|tests/course_lib/test_kernel|tests/test_browser_"
)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Here and not in pyproject.toml, whose settings hold for ``pytest --nbval`` on the solved
    notebooks, too: who has requirements.txt alone has no plugin that ends tests."""
    if config.option.timeout is None:
        config.option.timeout = SECONDS


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For ``pytest -n``. (Its own groups by a mark find no test under pytest 9.2.)"""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            found = TOGETHER.match(nodeid)
            return re.sub("::.*\\[", " ", found[0]) if found else nodeid

    return Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with what may take longest go first, so that the processes of ``pytest -n`` end at
    about the same time; the tests of one stay together, and so does what they share."""
    longest: dict[Path, tuple[float, bool]] = {}
    for item in items:
        longest[item.path] = max(longest.get(item.path, (0.0, False)), allowed_time(item))
    items.sort(key=lambda i: (longest[i.path], i.path, allowed_time(i)), reverse=True)


def allowed_time(item: pytest.Item) -> tuple[float, bool]:
    """Seconds after which a test that stands still is ended, and whether it is a slow one."""
    own = item.get_closest_marker("timeout")
    seconds = max(SECONDS, own.args[0]) if own else SECONDS
    return float(seconds), bool(item.get_closest_marker("slow"))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long ranks are stuck decides when it is told, not what is said of it."""
    monkeypatch.setattr(standing, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(standing, "DEADLOCK_SECONDS", 0.2)


@pytest.fixture(scope="session")
def root() -> Path:
    """The course's own folder."""
    return ROOT


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The course's wheel."""
    from course_staff.authoring.wheel import make_wheel

    return make_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the course as whoever has only the wheel has it."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def find_browser() -> str | None:
    """A Chromium on this machine; the variable CHROMIUM names another one."""
    if named := os.environ.get("CHROMIUM"):
        return shutil.which(named)
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium. Skips where there is none, but fails in continuous integration."""
    path = find_browser()
    if path is None:
        reason = f"no browser here: install {', '.join(BROWSERS[:3])}, or name one in CHROMIUM"
        if IN_CI:
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(BROWSER_FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def jupyterlab(
    installed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Path], str]]:
    """One JupyterLab for all tests: gives the address of a notebook in a test's own folder."""
    from course_staff.authoring.execute import clean_environment

    top, settings = tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp("settings")
    sockets = tempfile.TemporaryDirectory()  # no port that another process could take
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--port=0", "--allow-root"),
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.news_url=",
        "--KernelManager.transport=ipc",
        f"--ServerApp.root_dir={top}",
    ]
    server = subprocess.Popen(
        command,
        cwd=top,
        env=clean_environment(installed, settings)
        | {"JUPYTER_RUNTIME_DIR": sockets.name, "JUPYTER_DATA_DIR": str(settings)}
        | {"CI": ""},  # somebody looks on
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        address = _address(server)
        yield lambda path: address.replace("/lab?", f"/lab/tree/{path.relative_to(top)}?reset&")
    finally:
        server.terminate()
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        sockets.cleanup()


def _address(server: subprocess.Popen) -> str:
    """The address that the server prints once it listens."""
    seen = []
    assert server.stdout is not None
    for line in server.stdout:
        seen.append(line)
        if match := re.search(r"http://(?:127\.0\.0\.1|localhost):\d+/lab\?token=\w+", line):
            # It goes on printing, and somebody has to read it.
            threading.Thread(target=server.stdout.read, daemon=True).start()
            return match[0]
    pytest.fail(f"JupyterLab ended:\n{''.join(seen)}")
