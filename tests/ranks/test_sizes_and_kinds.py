"""Calls whose ranks have sizes of their own, tensors that are no plain block of memory, groups that
each rank makes for itself, and time that a program itself lets run out.
"""

import ctypes
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import cloudpickle
import pytest
import torch
import torch.distributed as dist

from course_lib import Deadlock, Mismatch, RankDied, RankFailed, run, simulate

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("impatient")]


# ---- sizes --------------------------------------------------------------------------------------


def exchange(gives: list[list[int]], expects: list[list[int]]) -> list[float]:
    """all_to_all_single with these splits, by rank."""
    rank = dist.get_rank()
    out = torch.empty(sum(expects[rank]))
    given = torch.full((sum(gives[rank]),), float(rank))
    dist.all_to_all_single(out, given, expects[rank], gives[rank])
    return out.tolist()


def test_an_exchange_of_uneven_sizes_that_fit_is_right():
    fit = run(exchange, [[1, 3], [2, 0]], [[1, 2], [3, 0]], world_size=2)
    assert fit.results == [[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("gives", "expects", "says"),
    [
        ([[1, 1], [1, 1]], [[1, 3], [1, 1]], "rank 1 sends 1 element to rank 0, which expects 3."),
        ([[1, 1], [3, 1]], [[1, 1], [1, 1]], "rank 1 sends 3 elements to rank 0, which expects 1."),
        ([[1, 0], [1, 1]], [[1, 1], [1, 1]], "rank 0 sends 0 elements to rank 1, which expects 1."),
        # each fits rank 0
        ([[1] * 3, [1, 1, 2], [1] * 3], [[1] * 3] * 3, "rank 1 sends 2 elements to rank 2, which"),
    ],
)
def test_who_sends_whom_too_much_or_too_little_is_told(gives: list, expects: list, says: str):
    with pytest.raises(Mismatch, match=says) as caught:
        run(exchange, gives, expects, world_size=len(gives))
    assert caught.value.what == "splits"


def test_splits_are_rows_and_what_is_told_are_elements():
    def rows() -> None:
        mine = [1, 1] if dist.get_rank() else [1, 2]
        dist.all_to_all_single(torch.empty(2, 5), torch.ones(sum(mine), 5), [1, 1], mine)

    with pytest.raises(Mismatch, match="rank 0 sends 10 elements to rank 1, which expects 5"):
        run(rows, world_size=2)


def test_blocks_of_a_reduce_scatter_that_do_not_fit_are_told():
    def scatter() -> None:
        rank = dist.get_rank()
        sizes = [[1, 2], [2, 1]][rank]
        dist.reduce_scatter(torch.empty(sizes[rank]), [torch.ones(n) for n in sizes])

    with pytest.raises(Mismatch, match="rank 0 sends 2 elements to rank 1, which expects 1"):
        run(scatter, world_size=2)


def test_what_gloo_refuses_of_uneven_lists_names_the_sizes():
    def gather() -> None:
        outs = [torch.empty(1), torch.empty(2)] if dist.get_rank() == 0 else None
        dist.gather(torch.ones(1), outs)

    def scatter() -> None:
        parts = [torch.ones(1), torch.ones(2)] if dist.get_rank() == 0 else None
        dist.scatter(torch.empty(1), parts)

    def all_to_all() -> None:
        dist.all_to_all([torch.empty(1), torch.empty(2)], [torch.ones(1), torch.ones(1)])

    for call in (gather, scatter, all_to_all):
        with pytest.raises(RankFailed, match=r"\(2\)"):
            run(call, world_size=2)


# ---- tensors ------------------------------------------------------------------------------------


def sparse() -> torch.Tensor:
    return torch.eye(3).to_sparse()


def complex_numbers() -> torch.Tensor:
    return torch.ones(3, 3, dtype=torch.complex64)


@pytest.mark.parametrize("make", [sparse, complex_numbers])
def test_kinds_of_tensors_that_gloo_adds_are_recorded(make: Callable[[], torch.Tensor]):
    def add() -> float:
        x = make()
        dist.all_reduce(x)
        return abs(x.to_dense().sum().item())

    result = run(add, world_size=2)
    assert result.results == [2 * abs(make().to_dense().sum().item())] * 2
    assert {(e.op, e.shape[:2]) for e in result.trace.events} == {("all_reduce", (3, 3))}
    assert all(e.nbytes for e in result.trace.events)


def compressed() -> torch.Tensor:
    return torch.eye(3).to_sparse_csr()


def quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)


def nested() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


@pytest.mark.parametrize("make", [compressed, quantized, nested])
def test_kinds_of_tensors_that_torch_refuses_are_refused_in_a_line(make: Callable):
    with pytest.raises(RankFailed, match="This call takes no such tensor") as caught:
        run(lambda: dist.all_reduce(make()), world_size=2)
    assert len(str(caught.value).splitlines()) == 3


def test_a_meta_tensor_goes_through():
    assert run(lambda: dist.all_reduce(torch.ones(4, device="meta")), world_size=2).results


@pytest.mark.parametrize("engine", [run, simulate])
def test_one_tensor_for_all_outputs_is_told(engine: Callable):
    def gather() -> None:
        n = dist.get_world_size()
        dist.all_gather([torch.zeros(2)] * n, torch.ones(2))

    with pytest.raises(Mismatch, match="rank 0 lets all_gather fill one tensor 3 times"):
        engine(gather, world_size=3)


# ---- groups, and time that runs out -------------------------------------------------------------


def test_each_rank_may_make_a_group_for_itself():
    def alone() -> int:
        pairs = [[0, 2], [1, 3]]
        mine, _ = dist.new_subgroups_by_enumeration(pairs)
        inner, _ = dist.new_subgroups(group_size=1, group=mine)
        dist.barrier(inner)
        dist.barrier()
        return inner.size()

    assert run(alone, world_size=4).results == [1] * 4


SECOND = timedelta(seconds=1)


def test_a_barrier_that_a_program_lets_run_out_is_no_error(monkeypatch: pytest.MonkeyPatch):
    """It runs out before ranks that are stuck are told so."""
    monkeypatch.undo()

    def who_is_there(barrier: Callable[..., None]) -> str | None:
        group = dist.new_group(timeout=SECOND)
        if dist.get_rank() == 0:
            try:
                barrier(group)
            except RuntimeError:
                return "nobody"
        return None

    assert run(who_is_there, dist.barrier, world_size=2).results == ["nobody", None]
    asked = run(who_is_there, lambda g: dist.monitored_barrier(g, SECOND), world_size=2)
    assert asked.results == ["nobody", None]
    assert [e.op for e in asked.trace.of(0)][-1] == "monitored_barrier"


def test_a_monitored_barrier_without_all_ranks_is_a_deadlock():
    with pytest.raises(Deadlock, match="rank 0 waits in monitored_barrier"):
        run(lambda: dist.get_rank() or dist.monitored_barrier(), world_size=2)


# ---- what helps ---------------------------------------------------------------------------------


def test_a_root_by_its_number_in_the_group_is_told_the_other_word():
    def share() -> None:
        groups = dist.new_group([0, 1]), dist.new_group([2, 3])
        dist.broadcast(torch.ones(1), src=0, group=groups[dist.get_rank() // 2])

    with pytest.raises(RankFailed, match="say group_src="):
        run(share, world_size=4)


def test_a_crash_that_a_debugging_variable_brings_is_named_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    assert run(dist.get_debug_level, world_size=1).results == [dist.DebugLevel.DETAIL]
    with pytest.raises(RankDied, match="TORCH_DISTRIBUTED_DEBUG=DETAIL is set"):
        run(lambda: ctypes.string_at(0), world_size=1)


@pytest.mark.parametrize("engine", [run, simulate])
def test_calls_that_had_parted_before_are_told_where(engine: Callable):
    def log(names: list[str]) -> None:
        for _ in names:
            dist.all_reduce(torch.ones(1))

    def step() -> None:
        log(["loss"] * (2 + (dist.get_rank() == 1)))
        dist.all_reduce(torch.ones(1))

    with pytest.raises(Deadlock) as caught:
        engine(step, world_size=3)
    text = str(caught.value)
    assert "They had parted before, at collective call 3:\n  ranks 0 and 2   " in text
    lines = [line for line in text.splitlines() if "dist.all_reduce(torch.ones(1))" in line]
    assert len({line.split("line ")[1] for line in lines}) == 2


@pytest.mark.parametrize("engine", [run, simulate, partial(simulate, backend="nccl")])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_list_of_outputs_may_be_filled_up_with_one_tensor(engine: Callable, is_async: bool):
    """As Muon does; what comes for the other ranks is right."""

    def fill_up() -> list[float]:
        rank, size = dist.get_rank(), dist.get_world_size()
        outputs = [torch.empty(4), torch.empty(4)] + [torch.empty(4)] * (size - 2)
        work = dist.all_gather(outputs, torch.full((4,), float(rank)), async_op=is_async)
        if work is not None:
            work.wait()
        return [output[0].item() for output in outputs[:2]]

    assert engine(fill_up, world_size=4).results == [[0.0, 1.0]] * 4


@pytest.mark.parametrize("engine", [run, simulate])
def test_branches_that_met_are_not_said_to_have_parted(engine: Callable):
    def step() -> None:
        if dist.get_rank() == 0:
            dist.broadcast(torch.ones(1), src=0)
        else:
            dist.broadcast(torch.ones(1), src=0)
        dist.barrier()
        dist.all_reduce(torch.ones(1 + dist.get_rank()))

    with pytest.raises(Mismatch) as caught:
        engine(step, world_size=2)
    assert "parted" not in str(caught.value)
