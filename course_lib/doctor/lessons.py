"""What each lesson will do on this machine, from the functions that its code calls."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from course_lib.doctor.probes import Finding

ROOT = Path(__file__).resolve().parents[2]


class Mode(NamedTuple):
    """A function of the course, the probes that it needs, and what a lesson that calls it does
    here, with them and without them.
    """

    word: str
    probes: tuple[str, ...]
    here: str
    without: str
    needed: bool = False


MODES = (
    Mode("run", ("gloo", "torch"), "real ranks on gloo", "no real ranks", needed=True),
    Mode("run", ("recording",), "recorded", "not recorded: traces and their pictures are empty"),
    Mode("simulate", ("simulate",), "simulated ranks", "cells with simulate() end in an error"),
    Mode("check", ("simulate",), "checks on real and simulated ranks", "checks on real ranks"),
    Mode("run", ("NCCL",), 'NCCL, by backend="nccl"', ""),
)


def lessons(states: Mapping[str, str], folder: Path | None = None) -> list[Finding]:
    """What each lesson will do here; ``states`` is what came of the probes, by name."""
    paths = sorted((folder or ROOT / "notebooks" / "src").glob("[0-9][0-9]_*.py"))
    return [_lesson(path, states) for path in paths]


def _lesson(path: Path, states: Mapping[str, str]) -> Finding:
    try:
        used = uses(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        return Finding(path.stem, "MISSING", f"cannot be read: {error}", "git checkout notebooks")
    modes: list[Mode] = []
    lacks: list[Mode] = []
    for mode in MODES:
        if mode.word in used:
            fine = all(states.get(name) == "ok" for name in mode.probes)
            (modes if fine else lacks).append(mode)
    if vital := [mode.without for mode in lacks if mode.needed]:
        return Finding(path.stem, "MISSING", "; ".join(vital), "mend what is MISSING above")
    words = [mode.here for mode in modes] + [mode.without for mode in lacks if mode.without]
    return Finding(path.stem, "ok", "; ".join(words) or "one process")


def uses(source: str) -> set[str]:
    """The names of the functions that a lesson's code calls."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return {func.id for func in calls if isinstance(func, ast.Name)}
