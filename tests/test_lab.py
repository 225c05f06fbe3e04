"""``make lab``: a JupyterLab that opens on the map of the course, and asks nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from jupyterlab_server.settings_utils import get_settings

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = "@jupyterlab/apputils-extension:notification"


def make(*arguments: str) -> str:
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def test_it_asks_nothing_and_what_users_have_set_still_counts(tmp_path: Path, monkeypatch):
    """By what JupyterLab answers for its plugin, where ``make lab`` has written its own."""
    written = tmp_path / "etc" / "jupyter" / "labconfig" / "default_setting_overrides.json"
    make(f"VENV={tmp_path}", str(written))
    assert written.name in make("-n", f"VENV={tmp_path / 'none'}", "lab")
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path / "etc" / "jupyter"))
    lab, users = Path(sys.prefix) / "share" / "jupyter" / "lab", tmp_path / "user-settings"
    own = users / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    own.parent.mkdir(parents=True)
    own.write_text(json.dumps({"checkForUpdates": True}))

    found, _ = get_settings(str(lab / "settings"), str(lab / "schemas"), str(users), PLUGIN)
    defaults = {name: value["default"] for name, value in found["schema"]["properties"].items()}
    assert defaults["fetchNews"] == "false"  # "none" is the value at which it asks
    assert defaults["checkForUpdates"] is False
    assert found["settings"] == {"checkForUpdates": True}


def test_it_opens_on_the_map_which_the_command_before_it_writes():
    """What is on the map, and that its links lead on: test_progress.py, test_browser_lessons.py."""
    update, lab = make("-n", "--no-print-directory", "lab").splitlines()[-2:]
    assert update.endswith("-m course_lib update --missing")
    assert "--LabApp.default_url=/lab/tree/work/map.ipynb" in lab
