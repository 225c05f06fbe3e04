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

from course_lib import RankDied, RankFailed, run, simulate

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("impatient")]


# ---- sizes --------------------------------------------------------------------------------------


def test_what_gloo_refuses_of_uneven_lists_names_the_sizes():
    def all_to_all() -> None:
        dist.all_to_all([torch.empty(1), torch.empty(2)], [torch.ones(1), torch.ones(1)])

    with pytest.raises(RankFailed, match=r"\(2\)"):
        run(all_to_all, world_size=2)


# ---- tensors ------------------------------------------------------------------------------------


def quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)


def test_kinds_of_tensors_that_torch_refuses_are_refused_in_a_line():
    with pytest.raises(RankFailed, match="This call takes no such tensor") as caught:
        run(lambda: dist.all_reduce(quantized()), world_size=2)
    assert len(str(caught.value).splitlines()) == 3


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
def test_a_list_of_outputs_may_be_filled_up_with_one_tensor(engine: Callable):
    """As Muon does; what comes for the other ranks is right."""

    def fill_up() -> list[float]:
        rank, size = dist.get_rank(), dist.get_world_size()
        outputs = [torch.empty(4), torch.empty(4)] + [torch.empty(4)] * (size - 2)
        dist.all_gather(outputs, torch.full((4,), float(rank)), async_op=True).wait()
        return [output[0].item() for output in outputs[:2]]

    assert engine(fill_up, world_size=4).results == [[0.0, 1.0]] * 4
