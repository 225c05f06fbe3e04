"""Calls whose ranks have sizes of their own, tensors that are no plain block of memory, groups that
each rank makes for itself, and time that a program itself lets run out.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import partial

import cloudpickle
import pytest
import torch
import torch.distributed as dist
from programs.faults import exchange

from course_lib import RankDied, RankFailed, run, simulate

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("impatient")]


# ---- sizes --------------------------------------------------------------------------------------


def test_an_exchange_of_uneven_sizes_that_fit_is_right():
    fit = run(exchange, [[1, 3], [2, 0]], [[1, 2], [3, 0]], world_size=2)
    assert fit.results == [[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]


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
