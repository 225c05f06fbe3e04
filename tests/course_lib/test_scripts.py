"""Functions as scripts have them: the same one under ``run`` and ``simulate``, without a change."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import runpy
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh

from course_lib import Mismatch, RankDied, RankFailed, run, simulate

pytestmark = pytest.mark.slow

ENGINES = {"run": partial(run, timeout=30), "simulate": partial(simulate, limit=20)}
SIZE = 3


@pytest.fixture(params=ENGINES)
def engine(request):
    return partial(ENGINES[request.param], world_size=SIZE)


def place():
    return {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}


def total():
    x = torch.ones(1)
    dist.all_reduce(x)
    return x.item()


# ---- scripts that form the group themselves ------------------------------------------------------


def by_environment():
    dist.init_process_group("gloo")
    out = total()
    dist.destroy_process_group()
    return out


def by_address():
    patience = datetime.timedelta(seconds=30)
    url = "tcp://127.0.0.1:23456"
    dist.init_process_group("gloo", init_method=url, timeout=patience, **place())
    return total()


def as_tutorials_set_up():
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", **place())
    out = total()
    dist.destroy_process_group()
    return out


def in_a_store_of_its_own(port):
    where = place()
    store = dist.TCPStore("127.0.0.1", port, where["world_size"], where["rank"] == 0)
    dist.init_process_group("gloo", store=store, **where)
    if dist.get_rank() == 1:
        store.set("word", "from rank 1")
    claimed = dist.PrefixStore("part", store).compare_set("owner", "", "somebody")
    return total(), store.get("word"), store.add("count", 0), claimed


def by_a_file(path):
    dist.init_process_group("gloo", init_method=f"file://{path}", **place())
    return total()


def by_a_mesh():
    return init_device_mesh("cpu", (SIZE,)).size(), total()


def three_times():
    """With groups of the same name and other ranks, and a message, each time."""
    out = []
    for turn in range(3):
        dist.init_process_group("gloo")
        rank, pair = dist.get_rank(), [turn % 2, turn % 2 + 1]
        group, others = dist.new_group(pair), dist.new_group([0, 2])
        x = torch.ones(1) * (rank + 1)
        if rank in pair:
            dist.all_reduce(x, group=group)
        if rank != 1:
            dist.all_reduce(x, group=others)
        if rank == 0:
            dist.send(x, 1)
        if rank == 1:
            dist.recv(x, 0)
        out.append((x.item(), total()))
        dist.destroy_process_group()
    return out


SCRIPTS = {
    by_environment: 3.0,
    by_address: 3.0,
    as_tutorials_set_up: 3.0,
    by_a_mesh: (3, 3.0),
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_script_runs_under_both_without_a_change(engine, script):
    assert engine(script, init=False).results == [SCRIPTS[script]] * SIZE


def test_a_script_that_makes_its_own_store(engine, tmp_path):
    with socket.socket() as probe:  # under run it is the script's affair that a port is free
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = engine(in_a_store_of_its_own, port, init=False)
    assert done.results == [(3.0, b"from rank 1", 0, b"somebody")] * SIZE
    assert engine(by_a_file, str(tmp_path / "store"), init=False).results == [3.0] * SIZE


def test_groups_formed_again_are_told_apart(engine):
    done = engine(three_times, init=False)
    assert [len(r) for r in done.results] == [3] * SIZE
    assert [r[0] for r in done.results] == [r[2] for r in done.results]
    names = {f"{k}{again}" for k in range(3) for again in ("", "#2", "#3")}
    assert set(done.trace.groups) == names
    assert (done.trace.groups["1"], done.trace.groups["1#2"]) == ((0, 1), (1, 2))
    assert len(done.trace.events) == 3 * (2 * 3 + 4 + 2 + 3)


def test_a_port_that_is_taken_and_two_runs_at_once():
    taken = socket.socket()
    with taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # somebody else has it: as good
            taken.bind(("127.0.0.1", 12355))
            taken.listen()
        with ThreadPoolExecutor(2) as pool:
            jobs = [
                pool.submit(run, as_tutorials_set_up, world_size=2, init=False, timeout=30)
                for _ in range(2)
            ]
        seen = [job.result().results for job in jobs]
    assert seen == [[2.0, 2.0]] * 2


def names_too_many():
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=7)


def all_call_themselves_0():
    dist.init_process_group("gloo", rank=0, world_size=SIZE)


def test_another_world_than_the_one_that_runs_is_refused_at_once(engine):
    with pytest.raises(RankFailed, match="among 3 ranks would wait for ever: leave world_size out"):
        engine(names_too_many, init=False)
    with pytest.raises(RankFailed, match=r"ranks 1 and 2 raised .* on rank 1: .* leave rank out"):
        engine(all_call_themselves_0, init=False)


def test_a_group_that_is_there_is_not_formed_by_the_function(engine):
    with pytest.raises(RankFailed, match=r"has formed the process group .* or give init=False"):
        engine(by_environment)


def one_forgets():
    if os.environ["RANK"] != "1":
        dist.init_process_group("gloo")


def test_a_simulated_group_that_one_rank_never_forms_is_told():
    with pytest.raises(Mismatch, match="calls init_process_group, and rank 1 never did"):
        simulate(one_forgets, world_size=SIZE, init=False)


def test_a_simulated_group_of_another_backend_is_refused():
    def script():
        dist.init_process_group("nccl")

    with pytest.raises(RankFailed, match="this world is simulated with backend='gloo'"):
        simulate(script, world_size=2, init=False)
    simulate(script, world_size=2, init=False, backend="nccl")


def test_a_script_sees_what_torchrun_sets(engine):
    names = ["RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"]
    for init in (True, False):
        seen = engine(lambda: [os.environ.get(n) for n in names], init=init).results
        assert seen == [[str(r), str(r), "0", "3", "3", "127.0.0.1"] for r in range(SIZE)]


# ---- how scripts end -----------------------------------------------------------------------------


def exits(code, rank=None):
    if rank is None:
        dist.barrier()
    if rank in (None, dist.get_rank()):
        sys.exit(code)
    dist.barrier()


def test_sys_exit_after_the_work_is_an_end_like_any_other(engine):
    assert engine(exits, 0).results == [None] * SIZE


def test_an_exit_code_that_tells_of_a_failure_is_one(engine):
    with pytest.raises(RankDied, match="it said: no data") as caught:
        engine(exits, "no data")
    assert caught.value.exit_code == 1


def test_a_rank_that_exits_while_others_need_it_is_named(engine):
    with pytest.raises(RankDied, match=r"rank 1 left early: it called sys.exit\(0\)") as caught:
        engine(exits, 0, 1)
    text = str(caught.value)
    assert "rank 0 waits for it in barrier" in text and "rank 2 waits for it in barrier" in text
    assert (caught.value.rank, caught.value.exit_code) == (1, 0)


def reads_its_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    return parser.parse_args().epochs


def test_a_script_reads_the_arguments_that_this_process_was_given(engine, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--epochs", "5"])
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "train.py", raising=False)
    assert engine(reads_its_arguments).results == [5] * SIZE


def runs_a_file(path, *arguments):
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")


FILE = """
import argparse, logging, os, sys
import torch.distributed as dist
import torch.multiprocessing

parser = argparse.ArgumentParser()
parser.add_argument("--name", default="nobody")
options = parser.parse_args()
logging.basicConfig(level=logging.INFO, format=f"{os.environ['RANK']} %(message)s",
                    stream=sys.stdout)

def main():
    global world
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    everybody = [None] * world
    dist.all_gather_object(everybody, options.name + os.environ["RANK"])
    logging.info("%s of %d", everybody, sys.modules["__main__"].world)
    dist.destroy_process_group()

if __name__ == "__main__":
    sys.exit(main())
"""


def test_a_file_runs_as_it_is(engine, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(FILE)
    main = sys.modules["__main__"]
    done = engine(runs_a_file, str(path), "--name", "rank", init=False)
    lines = [f"[{r}] {r} ['rank0', 'rank1', 'rank2'] of 3\n" for r in range(SIZE)]
    assert done.output == "".join(lines)
    assert sys.modules["__main__"] is main
