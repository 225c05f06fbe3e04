"""Soaks repeat tests of real ranks: those and their helpers are found here, too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "ranks"))
