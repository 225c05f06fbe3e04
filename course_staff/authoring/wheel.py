"""The library as a wheel, to lie beside notebooks that are handed out without it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from course_check.copies.folders import LessonError
from course_lib.versions import FOR_LEARNERS

_FILES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
# As pip does without isolation: nothing is fetched. PyTorch has brought setuptools along.
_BUILD = "import sys, setuptools.build_meta as made; made.build_wheel(sys.argv[1])"


def make_wheel(root: Path, folder: Path) -> Path:
    """Make a wheel of the library and the exercises in ``root`` in ``folder``;
    returns its path. LessonError with setuptools' last line where that fails.

    It is made of a copy, so that ``root`` stays as it is.
    """
    with tempfile.TemporaryDirectory(prefix="wheel-") as scratch:
        tree, out = Path(scratch, "tree"), Path(scratch, "out")
        ignored = shutil.ignore_patterns("__pycache__")
        for package in FOR_LEARNERS:
            shutil.copytree(root / package, tree / package, ignore=ignored)
        for name in _FILES:
            if (root / name).exists():
                shutil.copy(root / name, tree)
        out.mkdir()
        command = [sys.executable, "-c", _BUILD, str(out)]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
        if done.returncode:
            raise LessonError(f"no wheel could be made: {done.stderr.strip().splitlines()[-1]}")
        [made] = out.glob("*.whl")
        return Path(shutil.copy(made, folder))
