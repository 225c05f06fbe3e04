"""Fetch what students have handed in, as data: python3 docs/ci/collect.py ROSTER.csv INBOX.tar

The roster's column ``repository`` says where a student's work lies. Its last commit goes into a
folder that is called as the roster calls the student's submissions. Nothing of it is run, no hook
and no filter, and links become small files of text. A repository that cannot be read is named, and
costs the others nothing.
"""

import csv
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

CAREFUL = ("core.symlinks=false", "core.hooksPath=/dev/null", "protocol.ext.allow=never")
QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"}


def fetched(repository: str, folder: Path) -> bool:
    settings = [word for setting in CAREFUL for word in ("-c", setting)]
    command = ["git", *settings, "clone", "--quiet", "--depth=1", "--no-recurse-submodules", "--",
               repository, str(folder)]  # fmt: skip
    return subprocess.run(command, env=os.environ | QUIET, timeout=300).returncode == 0


with Path(sys.argv[1]).open(newline="", encoding="utf-8-sig") as file:
    rows = list(csv.DictReader(file))
with tempfile.TemporaryDirectory() as scratch, tarfile.open(sys.argv[2], "w") as inbox:
    for number, row in enumerate(rows):
        name, folder = row.get("submission") or row["id"], Path(scratch, str(number))
        if not row["repository"] or not fetched(row["repository"], folder):
            print(f"{name}: nothing to collect", file=sys.stderr)
            continue
        work = folder / "work"  # where a release has the answers; beside it lie untouched lessons
        for notebook in sorted((work if work.is_dir() else folder).rglob("*.ipynb")):
            if notebook.is_file():
                inbox.add(notebook, f"{name}/{notebook.relative_to(folder)}")
