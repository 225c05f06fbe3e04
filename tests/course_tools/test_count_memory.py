"""Bytes alive in a rank: by hand, beside torch's own MemTracker, and alike in every engine."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from types import MappingProxyType

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Adam

from course_lib import count_memory, draw, run, simulate, span
from course_tools.count_memory import reading

pytestmark = pytest.mark.slow

ENGINES = [run, simulate, partial(simulate, backend="nccl")]
WIDTH, DEPTH = 64, 4
P = DEPTH * WIDTH * WIDTH * 4  # bytes of parameters


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH)))


def ddp() -> tuple:
    model = DistributedDataParallel(layers())
    return model, Adam(model.parameters(), foreach=False)


def sharded(reshard: bool) -> tuple:
    model = layers()
    for part in (*model, model):
        fully_shard(part, reshard_after_forward=reshard)
    return model, Adam(model.parameters(), foreach=False)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    model(x).sum().backward()
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
        (ddp, 4 * P, 4 * P),  # its buckets stay
        (partial(sharded, True), 1.5 * P, 1.5 * P),
        (partial(sharded, False), 1.5 * P, 2.5 * P),
    ],
    ids=["DDP", "fully_shard", "kept whole"],
)
def test_what_a_step_leaves_is_what_the_formula_says_in_every_engine(make, at_rest, between):
    steps = 4 * DEPTH  # Adam keeps a number a parameter, which says how often it has stepped
    outputs = (DEPTH - 1) * WIDTH * 4 + 4  # activations that backward needs, and the loss
    for engine in ENGINES:
        for counted_between, counted in engine(three_steps, make, world_size=2).results:
            mine = counted - at_rest
            assert 0 < mine <= steps, engine
            assert counted_between - between == mine + outputs, engine


def test_the_figures_are_those_of_torchs_own_tracker():
    """Of other programs: tests/soak."""

    def both() -> tuple[list[int], list[int]]:
        x = torch.ones(1, WIDTH)
        model, optimizer = ddp()
        tracker = MemTracker()
        tracker.track_external(model, optimizer, x)
        with tracker:
            step(model, optimizer, x)
        told = [tracker.get_tracker_snapshot(kind)[x.device] for kind in ("current", "peak")]
        model, optimizer = ddp()
        with count_memory(model, optimizer, x) as memory:
            step(model, optimizer, x)
        return [one["Total"] for one in told], [memory.now, memory.peak]

    ((told, counted),) = run(both, world_size=1).results
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


@pytest.mark.parametrize("kind", [OrderedDict, MappingProxyType])
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
    own = draw.memory(done, unit=("P", 1001))
    assert "backward   4 P         4 P" in own.words
    nothing = simulate(lambda: None, world_size=1)
    assert draw.memory(nothing).words == "no memory was counted: see count_memory"
    with pytest.raises(ValueError, match="without a run"):
        draw.memory()
