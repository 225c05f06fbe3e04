"""``make lab``: a JupyterLab that asks nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = "@jupyterlab/apputils-extension:notification"


def make(*arguments: str) -> str:
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What JupyterLab answers for this plugin, where ``make lab`` has written its own."""
    from jupyterlab_server.settings_utils import get_settings

    written = tmp_path / "etc" / "jupyter" / "labconfig" / "default_setting_overrides.json"
    make(f"VENV={tmp_path}", str(written))
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path / "etc" / "jupyter"))
    lab = Path(sys.prefix) / "share" / "jupyter" / "lab"
    users = tmp_path / "user-settings"

    def answer() -> tuple[dict, dict]:
        found, _ = get_settings(str(lab / "settings"), str(lab / "schemas"), str(users), PLUGIN)
        defaults = {name: value["default"] for name, value in found["schema"]["properties"].items()}
        return defaults, found["settings"]

    answer.users = users  # type: ignore[attr-defined]
    return answer


def test_it_asks_for_no_news_and_looks_for_no_updates(settings, tmp_path: Path):
    assert "default_setting_overrides.json" in make("-n", f"VENV={tmp_path / 'none'}", "lab")
    defaults, _ = settings()
    assert defaults["fetchNews"] == "false"  # "none" is the value at which it asks
    assert defaults["checkForUpdates"] is False


def test_what_users_have_set_for_themselves_still_counts(settings):
    own = settings.users / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    own.parent.mkdir(parents=True)
    own.write_text(json.dumps({"fetchNews": "true"}))
    _, chosen = settings()
    assert chosen == {"fetchNews": "true"}
