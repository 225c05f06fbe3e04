"""What torch's own dumps tell: gloo's are taken here, NCCL's are written as its source says."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from course_lib import run
from course_tools.watch.flight_recorder import dumps_in, judge
from course_tools.watch.watch_command import main

pytestmark = pytest.mark.slow


def dumped() -> tuple[bytes, bytes]:
    """This rank's gloo dump: as a pickle with stacks, and as JSON, which has none."""
    from torch._C import _distributed_c10d as c10d

    return c10d._dump_fr_trace(True, True, False), c10d._dump_fr_trace_json(True, False)


def dumped_when_done() -> bytes:
    """gloo's thread writes down that a call is over a moment after its wait() has returned."""
    while not all(call["retired"] for call in pickle.loads(dumped()[0])["entries"]):
        pass
    return dumped()[0]


def late_on_rank_0() -> tuple[bytes, bytes, bytes]:
    """The dumps at a moment when all have made a call but rank 0, and when it has, too."""
    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    x = torch.ones(4)
    dist.all_reduce(x)
    dist.reduce_scatter_tensor(torch.empty(1), torch.ones(3))
    work = dist.broadcast(x, src=0, async_op=True) if rank else None
    found = dumped()
    store.add("dumped", 1)
    while store.add("dumped", 0) < 3:
        pass
    (work or dist.broadcast(x, src=0, async_op=True)).wait()
    return *found, dumped_when_done()


@pytest.fixture(scope="module")
def late() -> list[tuple[bytes, bytes, bytes]]:
    return run(late_on_rank_0, world_size=3, record=False).results


def written(folder: Path, dumps: list) -> list[Path]:
    for rank, dump in enumerate(dumps):
        content = dump if isinstance(dump, bytes) else pickle.dumps(dump, 2)
        (folder / f"dump_{rank}").write_bytes(content)
    return dumps_in(folder)


def test_gloos_dumps_name_who_has_not_called(late: list, tmp_path: Path):
    told = judge(written(tmp_path, [pickled for pickled, *_ in late]))
    row = r"rank 1 has called broadcast\(\); rank 0 did not +test_flight_recorder.py, line \d+"
    assert re.search(row, told)
    assert "rank 0's last call is reduce_scatter_single()" in told, "not all_reduce, as gloo says"
    assert "keeps rank 0 from making that call" in told
    assert "gloo's dumps have no send and no recv" in told


def test_json_tells_the_same_but_for_lines(late: list, tmp_path: Path):
    for rank, (_, text, _) in enumerate(late):
        (tmp_path / f"trace-{rank}.json").write_bytes(text)
    told = judge(dumps_in(tmp_path))
    assert "rank 2 has called broadcast(); rank 0 did not\n" in told
    assert "These dumps have no stacks, so no lines can be named." in told


def test_a_rank_without_a_dump_is_named(late: list, tmp_path: Path):
    told = judge(written(tmp_path, [pickled for pickled, *_ in late])[1:])
    assert "There is no dump of rank 0." in told


def test_what_is_done_lacks_nothing_though_an_older_dump_does_not_know_it(
    late: list, tmp_path: Path
):
    told = judge(written(tmp_path, [late[0][0], late[1][2], late[2][2]]))
    assert "each met its counterpart" in told


# ---- NCCL's: none was recorded on a GPU, they follow FlightRecorder.hpp of torch 2.15 ----------


def entry(number: int, name: str, size: int = 4, state: str = "completed") -> dict:
    """One of an NCCL dump, version 2.10, as getCollectiveTrace makes it."""
    is_p2p = "send" in name or "recv" in name
    frames = [
        {"name": "all_reduce", "filename": dist.distributed_c10d.__file__, "line": 1},
        {"name": "train", "filename": "/home/somebody/train.py", "line": 10 + number},
    ]
    return {
        "frames": [] if is_p2p else frames,
        "record_id": number,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 0 if is_p2p else number + 1,
        "p2p_seq_id": number + 1 if is_p2p else 0,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": 1_000_000 + number,
        "input_sizes": [[size]],
        "input_dtypes": ["Float"],
        "output_sizes": [[size]],
        "output_dtypes": ["Float"],
        "state": state,
        "retired": state == "completed",
        "is_p2p": is_p2p,
    }


def nccl_dump(*entries: dict) -> dict:
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "comm_lib_version": "2.29.3",
        "pg_status": {"0": {"last_enqueued_collective": len(entries)}},
        "entries": list(entries),
    }


def test_nccls_sizes_that_differ(tmp_path: Path):
    first = nccl_dump(entry(0, "all_reduce"), entry(1, "all_reduce", 8, "started"))
    other = nccl_dump(entry(0, "all_reduce"), entry(1, "all_reduce", 6, "started"))
    told = judge(written(tmp_path, [first, other]))
    assert told.startswith("Mismatch: ranks 0 and 1 do not agree on the shape: 8 elements and 6 el")
    assert "train.py, line 11" in told
    assert "gloo" not in told


def test_nccls_messages_that_wait_in_a_circle(tmp_path: Path):
    both = [nccl_dump(entry(0, f"recv {r}<-{1 - r}", state="started")) for r in range(2)]
    assert "wait for one another: a deadlock" in judge(written(tmp_path, both))


def test_calls_that_are_lost_are_no_calls_that_miss(tmp_path: Path):
    """A buffer keeps the last calls: rank 1 made more of them, and has lost more."""
    first = [entry(n, "all_reduce") for n in range(4)]
    other = [entry(n, "all_reduce") for n in range(2, 5)]
    other[-1] = entry(4, "all_reduce", state="started")
    told = judge(written(tmp_path, [nccl_dump(*first), nccl_dump(*other)]))
    assert "rank 1 has called all_reduce(); rank 0 did not" in told
    assert "train.py, line 14" in told
    assert "rank 1 kept only the last 3 calls" in told


# ---- what strangers wrote ------------------------------------------------------------------------


class Evil:
    def __reduce__(self):
        return os.mkdir, ("comm_lib_version pg_config",)


def test_a_pickle_that_would_run_something_is_not_opened(
    late: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    paths = written(tmp_path, [pickle.dumps(Evil(), 2), *[pickled for pickled, *_ in late[1:]]])
    assert len(paths) == 3, "it looks like a dump"
    told = judge(paths)
    assert "dump_0 is no dump that can be read: it asks for posix.mkdir" in told
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_read_finds_dumps_where_there_are_no_logs(
    late: list, tmp_path: Path, capsys: pytest.CaptureFixture
):
    written(tmp_path, [pickled for pickled, *_ in late])
    assert main(["--read", str(tmp_path)]) == 0
    assert "keeps rank 0 from making that call" in capsys.readouterr().out
