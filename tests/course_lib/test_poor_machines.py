"""A machine that lacks something: a disk, room on it, shared memory, files to open."""

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


# Where nothing may be mounted, there is a disk that is not there instead of one that is full.
FULL = """
mount -t tmpfs -o size=64k none {folder}
head -c 1M /dev/zero > {folder}/full 2>/dev/null || true
mount -t tmpfs -o size=64k none /dev/shm
export TMPDIR={folder}
exec "$@"
"""

PROGRAM = """
    import os
    os.environ.setdefault("TMPDIR", "/dev/null/nowhere")
    import resource, threading
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
    def write():
        open(os.environ["TMPDIR"] + "/more", "w").write("x" * 99999)
    def load():
        from torch.utils.data import DataLoader
        return len(list(DataLoader(torch.ones(4, 1 << 16), num_workers=1)))
    results = []
    def one():
        results.append(run(os.getppid, world_size=2).results)
    threads = [threading.Thread(target=one) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    print(len(results), "runs from", len({pid for pair in results for pid in pair}))
    if os.fork() == 0:
        print("a fork has its own:", run(os.getppid, world_size=2).results[0] not in results[0])
        os._exit(0)
    os.wait()
    told(add, world_size=2)
    told(write, world_size=1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    told(add, world_size=32)
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    told(add, world_size=2)
    told(load, world_size=1)
    told(add, world_size=2)
    folder = os.environ["TMPDIR"]
    print(sorted(os.listdir(folder)) if os.path.isdir(folder) else [])
"""


@pytest.mark.slow
def test_little_room_few_files_and_four_threads_at_once(tmp_path: Path):
    command = [sys.executable, "-u", "-c", textwrap.dedent(PROGRAM)]
    if mounts := may_mount():
        command = [*IN_A_NAMESPACE, FULL.format(folder=tmp_path), "sh", *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = iter(done.stdout.splitlines())
    assert next(lines) == "4 runs from 1"
    assert next(lines) == "a fork has its own: True"
    assert next(lines) == "[2.0, 2.0]"
    assert next(lines).startswith("RankFailed rank 0 raised ")
    assert next(lines).startswith("NotStarted the ranks did not start (32 in number): Too many op")
    assert next(lines) == "[2.0, 2.0]"
    *loaded, added, left = lines  # in between are a worker's words
    assert added == "[2.0, 2.0]"
    assert left == ("['full', 'more']" if mounts else "[]")
    if mounts:
        assert "No space left on device" in done.stdout
        assert any("RankFailed" in line and "hared memory" in line for line in loaded)
