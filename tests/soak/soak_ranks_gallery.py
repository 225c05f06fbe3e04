"""docs/errors.md, provoked again from beginning to end: the same text, also on a busy machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from soak_ranks_common import busy, count, report

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, str(ROOT / "tools" / "errors_gallery.py"), "--check"]


@pytest.mark.timeout(3600)
def test_every_error_says_the_same_again():
    """As often as every tenth COUNT: 5 times if it is not given."""
    said, rounds = [], max(1, count(50) // 10)
    with busy():
        for _ in range(rounds):
            done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, timeout=600)
            if done.returncode:
                said.append(done.stdout + done.stderr)
    report("ranks_gallery", rounds=rounds, different=said)
    assert said == []
