"""What single lessons say in prose, as far as no cell of theirs asserts it."""

from __future__ import annotations

import difflib
import json
import math
import pickle
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.flight_recorder import fr_trace
from torch.distributed.flight_recorder.components.config_manager import JobConfig
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from course_lib import Deadlock, Network, RankFailed, simulate
from course_staff.authoring.source import read_lesson

ROOT = Path(__file__).resolve().parents[1]

SOLVED = ROOT / "notebooks" / "solutions"
LESSONS = {path.stem[:2]: path for path in sorted((ROOT / "notebooks" / "src").glob("*.py"))}


def played(lesson: str, *ids: str, **given: object) -> dict:
    """The names that these cells of a lesson define, run here; others are ``given``."""
    cells = {cell.id: cell for cell in read_lesson(LESSONS[lesson]).cells}
    names: dict = {"__name__": "__main__", **given}
    for id in ids:
        exec(compile(cells[id].text, f"<{id}>", "exec"), names)
    return names


def quoted(lesson: str, id: str) -> list[re.Pattern]:
    """The lines of the ``text`` that a cell quotes, for any numbers and anything in place of …"""
    [cell] = [cell for cell in read_lesson(LESSONS[lesson]).cells if cell.id == id]
    lines = re.search(r"```text\n(.+?)```", cell.text, re.DOTALL)[1].splitlines()
    patterns = [re.sub(r"\d+", r"\\d+", re.escape(line)) for line in lines]
    return [re.compile(pattern.replace("…", ".*")) for pattern in patterns]


def curves(lesson: str, id: str) -> dict[str, list[float]]:
    """By name, the heights of the curves of a stored picture. That they come out is nbval's."""
    notebook = json.loads((SOLVED / f"{LESSONS[lesson].stem}.ipynb").read_text())
    [cell] = [cell for cell in notebook["cells"] if cell["id"] == id]
    words = "".join(cell["outputs"][-1]["data"]["text/plain"]).splitlines()
    rows = (line.split(": ") for line in words)
    return {name: [float(y) for y in re.findall(r", ([\d.]+)\)", points)] for name, points in rows}


PLAIN = """
import sys, torch, torch.distributed as dist
store, rank = f"file://{sys.argv[1]}", int(sys.argv[2])
dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
if rank == 0:
    dist.all_reduce(torch.ones(1))
else:
    1 / 0
"""


@pytest.mark.slow
def test_plain_gloo_says_of_a_rank_that_has_ended_what_lesson_00_quotes(tmp_path: Path):
    """Lessons 00 and 02: within seconds, not after the 30 minutes for a rank that is alive."""
    command = [sys.executable, "-c", PLAIN, str(tmp_path / "store")]
    ranks = [subprocess.Popen([*command, rank], stderr=subprocess.PIPE, text=True) for rank in "01"]
    waiting, _ = [rank.communicate(timeout=300)[1] for rank in ranks]
    for line in quoted("00", "00-c27bba"):
        assert line.search(waiting), waiting
    assert dist.constants.default_pg_timeout == timedelta(minutes=30)


def printed_by(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300).stdout


FORKED = """
import multiprocessing, torch
def work():
    torch.randn(4_000_000).exp()
def outcome(patience):
    child = multiprocessing.get_context("fork").Process(target=work, daemon=True)
    child.start()
    child.join(patience)
    hangs = child.is_alive()
    child.kill()
    return "hangs" if hangs else child.exitcode
torch.set_num_threads(2)
torch.ones(3, requires_grad=True).sum().backward()
before = outcome(100)
work()
print(before, outcome(3))
"""


@pytest.mark.slow
def test_a_fork_hangs_once_its_parent_has_computed_something_large():
    """Lesson 00: it is the pool of threads that a large operator starts, not backward()."""
    assert printed_by(FORKED) == "0 hangs\n"


def test_the_presets_are_those_of_lesson_03s_table():
    text = LESSONS["03"].read_text()
    rows = re.findall(r"\| `(\w+)\(\)` \| (\S+) µs \| (\S+) GB/s \|", text)
    assert len(rows) == 5
    for name, microseconds, gigabytes in rows:
        wanted = Network(float(microseconds) / 1e6, float(gigabytes) * 1e9)
        assert getattr(Network, name)() == wanted


def test_the_model_gives_the_times_that_lesson_03_tells():
    at_128 = {way: 1e-6 * times[-1] for way, times in curves("03", "03-d496e2").items()}
    ethernet, size = Network.ethernet_100g(), 262_144
    assert math.isclose(at_128["tree"], 2 * 7 * ethernet.seconds(size), rel_tol=1e-3)
    bound = at_128["bandwidth bound"]
    assert 1.9 < bound / (size / ethernet.bandwidth) < 2, "it levels off at 2·S·β"
    assert math.isclose(at_128["best_formula"] - bound, 14 * ethernet.latency, rel_tol=2e-3)
    useful = curves("03", "03-3e960a").values()
    assert max(percent[2] - percent[-1] for percent in useful) < 4, "ranks hardly matter"


@pytest.mark.slow
def test_06_one_bucket_cannot_overlap_and_three_do():
    """What the picture shows is not so in the first step, whose only bucket fills last."""
    names = played("06", "06-af21f2", "06-bd98a8", "06-bc81ee", "06-032e9d", "06-55ff42")
    _, last_gradient, calls = names["window"](names["wrapped"], step=0)
    assert calls and all(call.issued > last_gradient for call in calls)
    for step in (1, 2):
        _, last_gradient, calls = names["window"](names["wrapped"], step)
        reductions = [call.issued for call in calls if call.op == "all_reduce"]
        assert len(reductions) == 3
        assert reductions[0] < last_gradient < reductions[2]
    assert [e.op for e in names["wrapped"].trace.of(0)].count("all_reduce") == 1 + 3 * 3


def test_06_the_change_to_ddp_names_the_device_three_times():
    """It is short enough to be read, and has what turns CPU code into GPU code."""
    jobs = ROOT / "course_tools" / "jobs"
    before, after = ((jobs / f"{name}.py").read_text() for name in ("single", "ddp"))
    changes = difflib.ndiff(before.splitlines(), after.splitlines())
    added = [line for line in changes if line.startswith("+ ")]
    assert len(added) <= 32
    for device in ("set_device(local_rank)", "device_id=device", "device_ids=[local_rank]"):
        assert sum(device in line for line in added) == 1


COMPILED = """
import torch, torch.distributed as dist, torch._dynamo.config as dynamo
from torch.nn.parallel import DistributedDataParallel as DDP
class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(600, 600) for _ in range(4))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x
def graphs(make, cut=True):
    torch._dynamo.reset()
    dynamo.optimize_ddp, made = cut, []
    model = make(lambda graph, _: made.append(graph) or graph.forward)
    for _ in range(2):
        model(torch.ones(2, 600)).sum().backward()
    return len(made)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
first = lambda backend: torch.compile(DDP(Layers(), bucket_cap_mb=1), backend=backend)
last = lambda backend: DDP(torch.compile(Layers(), backend=backend), bucket_cap_mb=1)
print(graphs(first), graphs(last), graphs(last, cut=False))
"""


@pytest.mark.slow
def test_06_the_compiler_cuts_its_graph_where_buckets_end_whichever_comes_first():
    """Four layers, each a bucket."""
    assert printed_by(COMPILED) == "4 4 1\n"


def test_07_torchfrtrace_takes_what_the_table_says():
    command = re.search(r"`torchfrtrace (.+?)`", LESSONS["07"].read_text())[1]
    asked = JobConfig().parse_args(command.split())
    assert asked.allow_incomplete_ranks and asked.trace_dir == "/shared/dumps"


def dumped(rank: int, *states: str) -> bytes:
    """What Flight Recorder writes of a rank, one of three: its calls of all_reduce, by state."""
    made = {"profiling_name": "nccl2:all_reduce", "process_group": ("0", "default_pg"), "pg_id": 0}
    made |= {"frames": [], "p2p_seq_id": 0, "is_p2p": False, "retired": False}
    sizes = {"input_sizes": [[4]], "output_sizes": [[4]]}
    dtypes = {"input_dtypes": ["Float"], "output_dtypes": ["Float"]}
    times = dict.fromkeys(("time_discovered_started_ns", "time_discovered_completed_ns"))
    of_each = made | sizes | dtypes | times | {"time_created_ns": 0, "timeout_ms": 600_000}
    entries = [
        of_each | {"state": state} | dict.fromkeys(("collective_seq_id", "op_id"), k)
        for k, state in enumerate(states, 1)
    ]
    entries = [entry | {"record_id": k} for k, entry in enumerate(entries)]
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    return pickle.dumps({"version": "2.10", "entries": entries, "pg_config": groups})


def test_07_torchfrtrace_says_who_is_missing_if_all_have_left_a_dump(tmp_path, caplog):
    for rank in (0, 1):
        (tmp_path / f"fr_{rank}").write_bytes(dumped(rank, "completed", "started"))
    with pytest.raises(AssertionError, match=r"Missing dump files from ranks \{2\}"):
        fr_trace.main([str(tmp_path)])

    fr_trace.main(["--allow-incomplete-ranks", str(tmp_path)])
    assert "missed FR dumps from ranks ({2})" in caplog.text and "missing ranks" not in caplog.text
    with pytest.raises(SystemExit):
        fr_trace.main(["-j", "--allow-incomplete-ranks", str(tmp_path)])
    assert "all_reduce(input_sizes=[[4]], state=started)" in caplog.text

    (tmp_path / "fr_2").write_bytes(dumped(2, "completed"))
    fr_trace.main(["--allow-incomplete-ranks", str(tmp_path)])
    assert "missing ranks: {2}" in caplog.text


def test_10_sums_are_wrong_in_silence_where_each_rank_leaves_out_a_layer_of_its_own():
    names = played("10", "10-4433d3", "10-595a4b", "10-1268f4", "10-f02d47", "10-abc564")

    def one_layer_each():
        torch.manual_seed(0)
        model = nn.ModuleList(nn.Linear(3, 3, bias=False) for _ in range(3))
        _, finish = names["overlapped"](model, 1)
        model[2](model[dist.get_rank()](torch.ones(1, 3))).sum().backward()
        finish()
        return model[dist.get_rank()].weight.grad

    of_layer_0, of_layer_1 = simulate(one_layer_each, world_size=2).results
    assert torch.equal(of_layer_0, of_layer_1), "each is the mean of two layers' gradients"


def test_13_a_gather_of_fully_shard_waits_for_the_layer_three_before_it():
    def in_layers(model):
        for part in [*model, model]:
            fully_shard(part)
        return model

    names = played("13", "13-b6b16d", "13-5db4f4", "13-843fc6", in_layers=in_layers)
    trace = names["gpus"](names["busy_tower"], in_layers, 1).trace
    begins = [call.issued for call in trace.of(0) if call.op == "all_gather_single"]
    done = [span.end for span in trace.spans if (span.rank, span.name) == (0, "compute")]
    assert [begins[4], begins[5]] == pytest.approx([done[1], done[2]], abs=1e-6)


def test_a_root_that_is_not_in_the_group_is_refused_as_lesson_08_says():
    def broadcast():
        names["dist"].broadcast(torch.ones(1), src=1, group=names["my_group"](names["ROWS"]))

    names = played("08", "08-d6730f", "08-098b7c")
    with pytest.raises(RankFailed) as caught:
        simulate(broadcast, world_size=6)
    assert (caught.value.kind, caught.value.rank) == ("ValueError", 3)


def test_06_a_loader_refuses_sampler_and_shuffle():
    sampler = DistributedSampler(range(10), num_replicas=2, rank=0)
    with pytest.raises(ValueError, match="mutually exclusive"):
        DataLoader(range(10), sampler=sampler, shuffle=True)


def test_06_the_wrapper_on_rank_0_alone_waits_forever_and_does_not_convert_batch_norm():
    def evaluated_on_rank_0():
        ddp = DistributedDataParallel(nn.BatchNorm1d(2))
        assert type(ddp.module) is nn.BatchNorm1d
        ddp.eval()
        if dist.get_rank() == 0:
            ddp(torch.ones(1, 2))

    with pytest.raises(Deadlock):
        simulate(evaluated_on_rank_0, world_size=2)


# Lesson 17's imports, and its model at true size.
LLAMA = [f"17-{id}" for id in ("9d8799", "66152f", "a36186", "daafa6", "64a6f5", "888f9c")]


@pytest.mark.slow
def test_17_each_layer_adds_the_same_seconds_and_bytes():
    """So the cost of 32 follows from one and two; the soak plays the whole model."""
    llama = played("17", *LLAMA)["llama"]
    one, two, three = (llama(layers) for layers in (1, 2, 3))
    for read in (lambda job: job.results[0], lambda job: job.memory.peak):
        added = read(two) - read(one)
        assert read(three) == pytest.approx(read(two) + added, rel=1e-9)


def test_17_powersgd_sends_two_thin_matrices():
    def steps():
        model = DistributedDataParallel(nn.Linear(96, 64, bias=False))
        state = powerSGD_hook.PowerSGDState(None, 4, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        for _ in range(4):
            dist.barrier()
            model(torch.ones(2, 96)).sum().backward()

    calls = simulate(steps, world_size=2).trace.of(0)
    last = max(k for k, call in enumerate(calls) if call.op == "barrier")
    sent = sum(call.nbytes for call in calls[last:] if call.op == "all_reduce")
    assert sent == 4 * 4 * (96 + 64)
    assert round(4096 * 14336 / (4 * (4096 + 14336))) == 796  # about 800
