"""Bytes alive in a rank: by hand, beside torch's own MemTracker, and alike in every engine."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from types import MappingProxyType, SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Adam

from course_check.rules import peaks_at, rests_at
from course_lib import count_memory, draw, run, simulate, span
from course_tools.count_memory import MemoryCounter, reading

pytestmark = pytest.mark.slow

ENGINES = [run, simulate, partial(simulate, backend="nccl")]
WIDTH, DEPTH = 64, 4
P = DEPTH * WIDTH * WIDTH * 4  # bytes of parameters


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH)))


def by_hand() -> tuple:
    model = layers()
    return model, Adam(model.parameters(), foreach=False)


def ddp() -> tuple:
    model = DistributedDataParallel(layers())
    return model, Adam(model.parameters(), foreach=False)


def zero_1() -> tuple:
    model = DistributedDataParallel(layers())
    return model, ZeroRedundancyOptimizer(model.parameters(), Adam, foreach=False)


def sharded(reshard: bool) -> tuple:
    model = layers()
    for part in (*model, model):
        fully_shard(part, reshard_after_forward=reshard)
    return model, Adam(model.parameters(), foreach=False)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    model(x).sum().backward()
    if not isinstance(model, DistributedDataParallel) and not hasattr(model, "reshard"):
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
    optimizer.step()
    optimizer.zero_grad()


def three_steps(make: Callable[[], tuple]) -> tuple[int, int]:
    """Bytes between forward and backward, and at rest, without those of the input."""
    model, optimizer = make()
    x = torch.ones(1, WIDTH)
    with count_memory(model, optimizer, x) as memory:
        for _ in range(2):
            step(model, optimizer, x)
        loss = model(x).sum()
        between = memory.at_rest()  # under run gloo lets go of tensors some milliseconds late
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss
        return between - x.nbytes, memory.at_rest() - x.nbytes


@pytest.mark.parametrize(
    ("make", "at_rest", "between"),
    [
        (by_hand, 3 * P, 3 * P),
        (ddp, 4 * P, 4 * P),  # its buckets stay
        (zero_1, 3 * P, 3 * P),
        (partial(sharded, True), 1.5 * P, 1.5 * P),
        (partial(sharded, False), 1.5 * P, 2.5 * P),
    ],
    ids=["by hand", "DDP", "ZeRO-1", "fully_shard", "kept whole"],
)
def test_what_a_step_leaves_is_what_the_formula_says_in_every_engine(make, at_rest, between):
    steps = 4 * DEPTH  # Adam keeps a number a parameter, which says how often it has stepped
    outputs = (DEPTH - 1) * WIDTH * 4 + 4  # activations that backward needs, and the loss
    for engine in ENGINES:
        for counted_between, counted in engine(three_steps, make, world_size=2).results:
            mine = counted - at_rest
            assert 0 < mine <= steps, engine
            assert counted_between - between == mine + outputs, engine


@pytest.mark.parametrize("make", [by_hand, ddp, partial(sharded, True)])
def test_the_figures_are_those_of_torchs_own_tracker(make):
    def both() -> tuple[list[int], list[int]]:
        x = torch.ones(1, WIDTH)
        model, optimizer = make()
        tracker = MemTracker()
        tracker.track_external(model, optimizer, x)
        with tracker:
            step(model, optimizer, x)
        told = [
            tracker.get_tracker_snapshot(kind)[x.device]["Total"] for kind in ("current", "peak")
        ]
        model, optimizer = make()
        with count_memory(model, optimizer, x) as memory:
            step(model, optimizer, x)
        return told, [memory.now, memory.peak]

    for told, counted in run(both, world_size=1).results:
        assert counted == told


def test_one_storage_is_counted_once_and_only_while_it_is_alive():
    kept = torch.ones(100)
    with count_memory(kept) as memory:
        assert memory.now == 400
        view = kept.view(10, 10)[2:]
        assert memory.now == 400
        more = view + 1
        assert memory.now == 400 + 320
        more.untyped_storage().resize_(0)  # which no operator does
        assert memory.now == 400
        del more
        sparse = torch.eye(3).to_sparse()
        assert memory.now == 400 + 3 * 4 + 2 * 3 * 8
        del sparse
        torch.empty(1000, device="meta")
    assert memory.peak < 1000
    assert memory.now == 400


class Named(dict):
    """A collection as a program makes its own."""


@pytest.mark.parametrize("kind", [Named, OrderedDict, MappingProxyType])
def test_what_lies_in_a_collection_of_any_kind_is_counted(kind):
    held = kind({"a": [torch.ones(100)], "b": (torch.ones(5),)})
    with count_memory(held) as memory:
        assert memory.now == 420


def test_the_largest_are_named_by_their_lines():
    with count_memory([torch.ones(3)]) as memory:
        large = torch.ones(50)
        assert large.sum() == 50
        (first,) = memory.largest(1)
    assert (first.nbytes, first.shape, first.dtype) == (200, (50,), "float32")
    assert first.line.source == "large = torch.ones(50)"
    assert str(first).startswith("200 bytes: float32 [50]   ")


def test_who_held_it_at_the_peak_is_kept_until_the_peak_begins_anew():
    given = torch.ones(3)
    with count_memory(given) as memory:
        torch.ones(50) + torch.ones(50)
        kept = torch.ones(4)
        assert [one.nbytes for one in memory.largest(9, at_peak=True)] == [200, 200, 200, 12]
        assert [one.nbytes for one in memory.largest(9)] == [16, 12]
        memory.reset_peak()
        assert memory.largest(9, at_peak=True) == memory.largest(9)
        held = reading(memory, peak=True)
    assert kept.numel() + given.numel() == 7
    assert held["memory"] == 28
    assert held["largest"].startswith("16 bytes: float32 [4]   ")


def test_a_peak_can_begin_anew_and_a_curve_knows_its_spans():
    def one() -> int:
        with count_memory() as memory:
            with span("first"):
                torch.ones(1000).sum()
            memory.reset_peak()
            with span("second"):
                torch.ones(10).sum()
            return memory.peak

    for engine in ENGINES:
        done = engine(one, world_size=2)
        assert done.results == [44, 44], engine
        assert {name for _, _, name in done.trace.memory[1]} == {"", "first", "second"}
        assert max(nbytes for _, nbytes, _ in done.trace.memory[1]) == 4004


def test_simulated_ranks_count_what_is_theirs():
    def own() -> int:
        with count_memory() as memory:
            x = torch.ones(1000 * (dist.get_rank() + 1))
            total = torch.ones(500)
            work = dist.all_reduce(total, async_op=True)
            work.wait()
            del x, work
            return memory.at_rest()

    assert simulate(own, world_size=3).results == [2000] * 3
    assert run(own, world_size=3).results == [2000] * 3


def test_the_picture_has_a_panel_a_run_and_says_the_same_in_words():
    def one() -> None:
        with count_memory():
            with span("forward"):
                x = torch.ones(1000 + dist.get_rank())
            with span("backward"):
                assert x.sum() > 0

    done = simulate(one, world_size=2)
    picture = draw.memory(done, done, titles=["a", "b"])
    assert [axes.get_title() for axes in picture.axes] == ["a", "b"]
    assert picture.words.splitlines()[:5] == [
        "a:",
        "span         peak  at its end",
        "outside       0 B         0 B",
        "forward      4 kB        4 kB",
        "backward  4.01 kB     4.01 kB",
    ]
    assert "4 kB" in draw.memory(done, rank=0).words
    own = draw.memory(done, unit=("P", 1001))
    assert "backward   4 P         4 P" in own.words
    [axes] = own.axes
    assert axes.yaxis.get_major_formatter()(2002, 0) == "2 P"
    assert axes.get_xlabel() == "operators that made or freed a tensor"
    nothing = simulate(lambda: None, world_size=1)
    assert draw.memory(nothing).words == "no memory was counted: see count_memory"
    with pytest.raises(ValueError, match="without a run"):
        draw.memory()


def test_a_rule_says_how_many_bytes_are_held_and_whose_they_are():
    given = torch.ones(50)
    with MemoryCounter([given], draws=False) as memory:
        kept = given * 2
        noted = reading(memory)
    assert kept.shape == given.shape and memory.curve == []
    seen = SimpleNamespace(args=(noted,))
    play = SimpleNamespace(done=True, case=SimpleNamespace(world=1), got=lambda rank: seen)
    [found] = rests_at(lambda play, rank: 399)(play)
    assert (found.kind, found.got, found.want) == ("memory", 400, 399)
    assert found.text.startswith("rank 0 holds 400 bytes at rest, at most 399; ")
    assert "200 bytes: float32 [50]" in found.text and "kept = given * 2" in found.text
    assert list(rests_at(lambda play, rank: None)(play)) == []
    noted["memory"] = "few"  # a rank's own word
    assert len(list(rests_at(lambda play, rank: 399)(play))) == 1
    noted |= reading(memory, peak=True)
    assert list(peaks_at(lambda play, rank: 400)(play)) == []
    [found] = peaks_at(lambda play, rank: 399)(play)
    assert found.text.startswith("rank 0 holds 400 bytes at the peak, at most 399; ")
    assert "kept = given * 2" in found.text


def test_what_an_operator_of_dtensors_gathers_meanwhile_is_in_the_peak():
    def multiplies() -> tuple[int, int]:
        mesh = init_device_mesh("cpu", (2,))
        rows = [DTensor.from_local(torch.ones(16, 32), mesh, [Shard(0)]) for _ in range(2)]
        with count_memory([t.to_local() for t in rows]) as memory:
            product = rows[0] @ rows[1]  # every rank needs all rows of the second
            assert product.shape == (32, 32)
            return memory.peak, memory.at_rest()

    whole, part = 32 * 32 * 4, 16 * 32 * 4
    for peak, at_rest in simulate(multiplies, world_size=2).results:
        assert at_rest == 3 * part
        assert peak >= at_rest + whole
