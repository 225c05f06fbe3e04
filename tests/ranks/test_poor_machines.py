"""Machines that lack something: a disk, room on it, shared memory, files to open.

Each test reads what a process prints, if need be in a private mount namespace, which needs root.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IN_A_NAMESPACE = ["unshare", "--mount", "sh", "-ec"]


def may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = [*IN_A_NAMESPACE, "mount -t tmpfs -o size=64k none /mnt"]
    return subprocess.run(command, capture_output=True).returncode == 0


needs_mounts = pytest.mark.skipif(not may_mount(), reason="this process may not mount anything")

BEGIN = """
    import os
    import torch, torch.distributed as dist
    from course_lib import run
    def told(fn, **options):
        try:
            print(run(fn, **options).results)
        except Exception as error:
            print(type(error).__name__, "|".join(str(error).splitlines()))
    def add():
        x = torch.ones(1)
        dist.all_reduce(x)
        return x.item()
"""


def say(code: str, prepare: str = "", begin: str = "") -> list[str]:
    """The lines that a notebook's process prints, after these commands of the shell."""
    program = [sys.executable, "-u", "-c", begin + textwrap.dedent(BEGIN) + textwrap.dedent(code)]
    shell = [*IN_A_NAMESPACE, f'{prepare}\nexec "$@"', "sh"] if prepare else []
    done = subprocess.run([*shell, *program], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def folders_left() -> set[Path]:
    return set(Path("/tmp").glob("course_lib-*"))


@pytest.mark.slow
def test_no_disk_four_threads_at_once_and_few_files():
    lines = say(
        """
        import resource, threading
        results = []
        def one():
            results.append(run(os.getppid, world_size=2).results)
        threads = [threading.Thread(target=one) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print(len(results), "runs from", len({pid for pair in results for pid in pair}))
        told(add, world_size=2)
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        told(add, world_size=32)
        told(add, world_size=2)
        """,
        begin='import os; os.environ["TMPDIR"] = "/dev/null/nowhere"',
    )
    assert lines[:2] == ["4 runs from 1", "[2.0, 2.0]"]
    assert lines[2] == "CourseError 32 ranks did not start: Too many open files"
    assert lines[3:] == ["[2.0, 2.0]"]


FULL = """
mount -t tmpfs -o size=64k none {folder}
head -c 1M /dev/zero > {folder}/full 2>/dev/null || true
mount -t tmpfs -o size=64k none /dev/shm
export TMPDIR={folder}
"""


@needs_mounts
@pytest.mark.slow
def test_a_full_disk_and_little_shared_memory(tmp_path: Path):
    before = folders_left()
    lines = say(
        """
        told(add, world_size=3)
        told(lambda: open(os.environ["TMPDIR"] + "/more", "w").write("x" * 99999), world_size=1)
        def load():
            from torch.utils.data import DataLoader
            return len(list(DataLoader(torch.ones(4, 1 << 16), num_workers=1)))
        told(load, world_size=1)
        told(add, world_size=2)
        """,
        FULL.format(folder=tmp_path),
    )
    assert lines[0] == "[3.0, 3.0, 3.0]"
    assert "No space left on device" in lines[1]
    assert lines[1].startswith("RankFailed rank 0 raised OSError")
    assert any("RankFailed" in line and "hared memory" in line for line in lines[2:-1]), lines
    assert lines[-1] == "[2.0, 2.0]"
    assert folders_left() == before
