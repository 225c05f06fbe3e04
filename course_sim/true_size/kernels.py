"""From an operator to the seconds of its kernel: a roofline.

    seconds = max( FLOPs / (peak of the dtype · efficiency),  bytes / (bandwidth · efficiency) )

FLOPs are counted by PyTorch's own registry (torch.utils.flop_counter): matrix products,
convolutions, attention. A causal attention does half of what the registry says. Bytes are what the
operator's schema says: each tensor that it reads, each that it makes, and twice each that it
changes, unless it overwrites that. Views take no time, nor does memory that nobody writes to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

from course_sim.tensor_memory import list_tensors
from course_sim.true_size.hardware import GPU

PRODUCTS, ATTENTION = "matrix products", "attention"
# Operators that make or change no element, beside views; and namespaces that have only such ones.
_NO_KERNEL = (
    "_unsafe_view empty empty_like empty_strided empty_permuted new_empty new_empty_strided "
    "_local_scalar_dense is_pinned is_same_size equal record_stream"
)
_FREE = frozenset(_NO_KERNEL.split())
_FREE_NAMESPACES = ("prim", "c10d", "profiler")
# How the names of operators begin that write each element and read none.
_OVERWRITE = ("copy", "fill", "zero", "normal", "uniform", "random", "bernoulli", "exponential")


class Cost(NamedTuple):
    """What a kernel does, and how long that takes."""

    kind: str
    seconds: float
    flops: int
    nbytes: int


class _Operator(NamedTuple):
    """What there is to know of an operator before it has arguments."""

    kind: str
    count_flops: Callable[..., int] | None
    passes: dict[str, int]  # how often it goes through each argument: reads it, writes it, or both
    makes: bool  # whether it returns what was not there before


@cache
def find_operator(func: Any) -> _Operator | None:
    """How to charge an operator; None where there is no kernel."""
    name = func.overloadpacket.__name__
    views = func.is_view or torch.Tag.inplace_view in func.tags
    if views or name in _FREE or func.namespace in _FREE_NAMESPACES:
        return None
    count = flop_registry.get(func.overloadpacket)
    kind = ATTENTION if count and "attention" in name else PRODUCTS if count else name.strip("_")
    passes = {each.name: _count_passes(name, each) for each in func._schema.arguments}
    writes = any(each.alias_info and each.alias_info.is_write for each in func._schema.arguments)
    if name == "all_gather_copy_in":  # fully_shard's: inputs go into a slice of a given output
        passes = {name: 2 * (name == "all_gather_inputs") for name in passes}
        writes = True
    return _Operator(kind, count, passes, not writes)


def _count_passes(name: str, argument: Any) -> int:
    """How often an operator goes through this argument: once to read or to overwrite it, twice to
    change it.
    """
    if argument.alias_info is None or not argument.alias_info.is_write:
        return 1
    overwrites = name.strip("_").removeprefix("foreach_").startswith(_OVERWRITE)
    return 1 if overwrites or argument.name == "out" else 2


def find_cost(gpu: GPU, func: Any, args: tuple, kwargs: dict, out: Any) -> Cost | None:
    """What the operator's kernel costs; None where there is none, as on the meta device."""
    operator = find_operator(func)
    if operator is None:
        return None
    named = dict(zip(operator.passes, args, strict=False)) | kwargs
    tensors = [(t, operator.passes[name]) for name in named for t in list_tensors(named[name])]
    tensors += [(t, 1) for t in list_tensors(out) if operator.makes]
    if not tensors or tensors[-1][0].device.type == "meta":
        return None
    nbytes = sum(times * count_bytes(tensor) for tensor, times in tensors)
    seconds = nbytes / (gpu.bandwidth * gpu.memory_efficiency)
    flops = 0
    if operator.count_flops is not None:
        flops = operator.count_flops(*args, **kwargs, out_val=out)
        if named.get("is_causal"):
            flops //= 2
        attends = operator.kind == ATTENTION
        efficiency = gpu.attention_efficiency if attends else gpu.matmul_efficiency
        seconds = max(seconds, flops / (_find_peak(gpu, tensors[0][0].dtype) * efficiency))
    return Cost(operator.kind, seconds, flops, nbytes)


def _find_peak(gpu: GPU, dtype: torch.dtype) -> float:
    """The GPU's peak for a dtype: for float32 that of tf32, if the program allows it."""
    name = str(dtype).removeprefix("torch.")
    if name == "float32" and torch.get_float32_matmul_precision() != "highest":
        name = "tf32"
    if name not in gpu.flops:
        raise ValueError(f"GPU.flops has no figure for {name}: give one, or use another dtype")
    return gpu.flops[name]


def count_bytes(tensor: torch.Tensor) -> int:
    """The bytes of a tensor, each once, also where it repeats them, as ``expand`` does."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
