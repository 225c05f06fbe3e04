"""One solved notebook under nbval, as tests, soaks and the benchmark run it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from course_staff.authoring.execute import CELL_SECONDS, clean_environment

# nbval with kernels that listen in the file system: of the ports that jupyter_client chooses before
# a kernel has started, another test's ranks may have one by then. And without the grammar of
# addresses that jsonschema would load, which takes a second and which no notebook has.
NBVAL = """
import functools, sys, pytest
sys.modules["rfc3987_syntax"] = None
from nbval import kernel
kernel.KernelManager = functools.partial(kernel.KernelManager, transport="ipc")
raise SystemExit(pytest.main())
"""


def compare(
    notebook: Path, rules: Path, root: Path, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run a solved notebook in an empty folder and compare all its outputs.

    ``rules`` is the sanitising file, ``root`` holds course_lib. Returns how pytest ended and what
    it said.
    """
    command = [
        *(sys.executable, "-c", NBVAL, "-q", "-p", "no:cacheprovider", "--color=no"),
        *("--disable-plugin-autoload", "-p", "nbval.plugin", "--nbval"),
        *(f"--nbval-cell-timeout={CELL_SECONDS}", f"--nbval-sanitize-with={rules}"),
        *(f"--rootdir={folder}", shutil.copy(notebook, folder)),
    ]
    return subprocess.run(
        command,
        cwd=folder,
        env=clean_environment(root, folder),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
