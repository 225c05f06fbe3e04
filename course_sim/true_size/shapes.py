"""Tensors with shapes and no values: the mode in which a rank runs at its true size.

Note [One mode for each rank]. The mode is PyTorch's own FakeTensorMode, on for the whole of a
rank's function, so that plain code needs no change. ``torch.device("meta")`` would not do: autocast
knows no such device, models and optimizers ask for ``cpu`` by name, and a value that is asked for
is not told apart from one that is not there. Each rank has a mode of its own, as PyTorch refuses to
mix tensors of two: nothing of one rank ever meets another's, because a call moves no value.

Note [What has values]. A tensor that was there before the mode, as an argument of the function, or
a mesh's list of ranks, keeps its values as long as it meets only its like: that is work of the
host, and costs nothing. A small number that the program names, as ``torch.tensor(0.0)`` for an
optimizer's step, keeps its value, too. A script that says "cuda" draws its batches by numbers that
lie on the host: what ``_NUMBERS`` make there as int64 has values until it is moved to a GPU.
Whatever else is asked for its value ends the run.

Note [What is hidden from the mode]. Three things of PyTorch run outside of it. DTensor finds shapes
by playing an operator on tensors of full size, which is no work of the GPU. A DeviceMesh has to
read the ranks that it was given. Stages of a pipeline tell one another their shapes as objects, and
the bytes of these are moved.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from course_sim.isolation import compat
from course_sim.isolation.private import Patch
from course_sim.rank import Rank, current
from course_sim.tensor_memory import list_tensors
from course_sim.true_size import stand_in
from course_sim.true_size.kernels import find_cost
from course_sim.true_size.sized_gpu import SizedGpu

_SEND_OBJECTS = ("send_object_list", "recv_object_list")  # by which stages of a pipeline talk
_NUMBERS = ("arange", "randint", "randperm", "empty")  # see Note [What has values]
# By operator that asks for a value, what the program has called.
_ASKED = {"_local_scalar_dense": "item", "equal": "torch.equal"}


class Shapes(compat.FakeTensorMode):
    """See Note [One mode for each rank]; it charges the rank's GPU for each operator."""

    def __init__(self, rank: Rank) -> None:
        super().__init__(allow_non_fake_inputs=True)
        assert isinstance(rank.gpu, SizedGpu)
        self._gpu = rank.gpu
        self._keeps_numbers = rank.says_cuda
        self.inside_operator = False  # whose shapes are worked out by playing others
        # Its memory of tensors that it has made would keep ``module.to(dtype)`` from swapping them.
        self.fake_tensor_converter.set_tensor_memo = lambda *_: None  # type: ignore[method-assign]

    def __deepcopy__(self, memo: dict) -> Shapes:
        """A copy of a model, as nn.TransformerEncoder makes them of its layers, is in this mode."""
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.inside_operator:  # one that plays others is charged itself, and alone
            return super().__torch_dispatch__(func, types, args, kwargs)
        if func.namespace in compat.FUNCTIONAL_COLLECTIVES:
            with self:  # the kernel in C++ calls the group
                return func._op_dk(compat.IN_CPP, *args, **kwargs)
        given = [t for value in (*args, *kwargs.values()) for t in list_tensors(value)]
        # lift_fns take a number that the program names into the mode
        if given and func not in self.lift_fns and all(type(t) is torch.Tensor for t in given):
            return func(*args, **kwargs)  # see Note [What has values]
        if self._keeps_numbers and not given and func.overloadpacket.__name__ in _NUMBERS:
            out = func(*args, **kwargs)
            if (out.dtype, out.device.type) == (torch.int64, "cpu"):
                return out
        self.inside_operator = True
        try:
            with torch._C.DisableTorchFunction():  # a script's own mode marks what the script makes
                out = super().__torch_dispatch__(func, types, args, kwargs)
        except compat.ASKS_FOR_VALUES:
            name = func.overloadpacket.__name__
            self._gpu.refuse_value(_ASKED.get(name, name))
        finally:
            self.inside_operator = False
        if out is not NotImplemented:
            self._charge(func, args, kwargs, out)
        return out

    def _charge(self, func: Any, args: tuple, kwargs: dict, out: Any) -> None:
        """Count what the operator has made, and give its kernel to the GPU."""
        cost = find_cost(self._gpu.hardware, func, args, kwargs, out)
        for tensor in list_tensors(out):
            if tensor.device.type != "meta":
                self._gpu.alive.see(tensor)
        self._gpu.alive.note()
        if cost is not None:
            self._gpu.run_kernel(cost)


def _outside(original: Any) -> Any:
    """The same, outside of the mode: see Note [What is hidden from the mode]."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compat.outside_of_modes(original, *args, **kwargs)

    return call


def _make_mesh(original: Any) -> Any:
    """A mesh knows the numbers of its ranks; init_device_mesh gives them in order."""

    @wraps(original)
    def make(self: DeviceMesh, *args: Any, **kwargs: Any) -> None:
        ranks = kwargs.get("_rank_map")
        if isinstance(ranks, compat.FakeTensor):
            ordered = compat.outside_of_modes(torch.arange, ranks.numel(), dtype=torch.int)
            kwargs["_rank_map"] = ordered
        compat.outside_of_modes(original, self, *args, **kwargs)

    return make


def _leave_out(original: Any) -> Any:
    """A function that does nothing in a rank."""

    @wraps(original)
    def call(*args: Any) -> Any:
        return original(*args) if current() is None else None

    return call


def _tell_resize(original: Any) -> Any:
    """``resize_`` of a storage, after which its bytes are counted anew."""

    @wraps(original)
    def resize(storage: torch.UntypedStorage, size: int) -> Any:
        out = original(storage, size)
        if (rank := current()) and isinstance(rank.gpu, SizedGpu):
            rank.gpu.alive.resized(storage)
        return out

    return resize


def patches() -> list[Patch]:
    """What of torch is replaced in ranks at their true size."""
    return [
        (torch.UntypedStorage, "resize_", _tell_resize),
        (DeviceMesh, "__init__", _make_mesh),
        (*compat.find_shape(), _outside),
        *((module, name, _outside) for module in (dist, compat.c10d) for name in _SEND_OBJECTS),
        *((*place, _leave_out) for place in compat.READ_BY_DDP),
        *compat.share_loss(_leave_out),
        *((*place, lambda kinds: [*kinds, compat.FakeTensor]) for place in compat.FOREACH_TYPES),
        *stand_in.patches(),
    ]
