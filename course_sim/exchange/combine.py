"""What a collective is passed, what it computes from that, and what gloo refuses to.

    ins[r]    the tensors that rank r passes in      all_gather      every rank gets every ins[r]
    outs[r]   what it gets                           reduce_scatter  rank r gets the sum of block r

Nothing here knows of ranks, groups or time: lists of tensors go in, lists of tensors come out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce as fold
from itertools import cycle
from typing import Any, NamedTuple

import torch

from course_lib.collectives import collective
from course_sim.records import Site

Tensors = list[torch.Tensor]


class Passed(NamedTuple):
    """What a rank passes into a call, as far as its exchange has to know. Only the contents of the
    ``given`` tensors matter; of the others it looks at dtype and shape.
    """

    op: str
    ins: Tensors  # what the rank gives
    outs: Tensors  # and what it gets
    site: Site
    root: int = -1
    reduce_op: str | None = None
    async_op: bool = False
    first: torch.Tensor | None = None  # the one that its Event shows, if not the first of these
    # What only the rank's end can tell:
    given: Sequence[torch.Tensor] = ()  # what is in ``ins`` now
    dense: bool = True  # whether the tensors lie as the call needs them: see _is_dense in works.py
    shared: str = ""  # what ``outs`` have in common: see overlap.py
    poisoned: int = 0  # how many of ``outs`` it will poison


_DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"]
_OF_COMPLEX = ("SUM", "AVG")  # of what torch does not hand on as real numbers
_FOLDS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def reduce_tensors(tensors: Sequence[torch.Tensor], op: str) -> torch.Tensor:
    """Combine one tensor of each rank, in rank order, into a flat one; a sparse one stays one."""
    if op == "SUM" and tensors[0].dtype == torch.bool:
        op = "BOR"
    total = fold(_FOLDS[op], [t if t.is_sparse else t.reshape(-1) for t in tensors])
    if op == "AVG":
        total = total / len(tensors)
    return total.clone() if len(tensors) == 1 else total


def refuse_dtype(op: str, tensor: torch.Tensor, backend: str) -> None:
    if str(tensor.dtype).removeprefix("torch.") not in _DTYPES:
        raise RuntimeError(f"{backend} has no {op} of {tensor.dtype}: convert the tensor first")


def refuse(passed: Passed, me: int, n: int, backend: str) -> None:
    """Raise where the backend raises: for a dtype, a reduce op, or tensors that differ on one rank.
    Some calls take blocks of uneven lengths on some backends.
    """
    op, reduce_op = passed.op, passed.reduce_op
    ins, outs = passed.ins, passed.outs
    for tensor in (ins or outs)[:1]:
        as_complex = reduce_op in _OF_COMPLEX or op == "broadcast"
        if not (tensor.is_complex() and as_complex):
            refuse_dtype(op, tensor, backend)
        if reduce_op is not None:
            _refuse_reducing(reduce_op, tensor, backend)
    # ``each`` are the lists with a block for each rank, ``one`` the tensors that a block is like
    if op.startswith(("all_gather", "gather")):
        one, each = ins, [outs]
    elif "scatter" in op:
        one, each = outs, [ins]
    elif op.startswith("all_to_all"):
        one, each = ins[:1], [ins, outs]
    else:
        return
    uneven_on = collective(op).uneven_on
    for many in each:
        if len(many) != n * len(one) and (many or op not in ("gather", "scatter")):
            raise ValueError(f"{op} needs {n} tensors or blocks, one per rank, not {len(many)}")
        for a, b in zip([many[me]] if op == "reduce_scatter" else many, cycle(one)):
            # where the list's shapes differ, NCCL moves each by itself, and counts elements
            alone = backend == "nccl" and len({tensor.shape for tensor in many}) > 1
            differs = op == "all_to_all_single" or a.numel() != b.numel() or alone
            of_own_length = differs and backend in uneven_on
            if a.dtype != b.dtype or (a.shape != b.shape and not of_own_length):
                raise RuntimeError(
                    f"{op}: what a rank gives and what it gets from each must have one shape and "
                    f"dtype, not {list(a.shape)} of {a.dtype} and {list(b.shape)} of {b.dtype}"
                )


def splits(passed: Passed, n: int) -> tuple[Any, Any]:
    """How many elements a rank gives each rank, and expects from each: two tuples, where each pair
    may have a number of its own; (None, None) where it may not.
    """
    op = passed.op
    if not collective(op).uneven_on:
        return None, None
    given = tuple(map(torch.numel, passed.ins))
    expected = tuple(map(torch.numel, passed.outs))
    if op.startswith("all_to_all"):
        return given, expected
    if op == "reduce_scatter":
        return given, expected * n
    # all_gather: what a rank gives, it gives to all; lengths differ only on NCCL
    return (given * n, expected) if len(set(expected)) > 1 else (None, None)


def _refuse_reducing(op: str, tensor: torch.Tensor, backend: str) -> None:
    """Raise where the backend cannot reduce such tensors by this operation."""
    dtype = tensor.dtype
    bitwise = op.startswith("B")
    if bitwise and backend == "nccl":
        raise ValueError(f"Cannot use ReduceOp.{op} with NCCL")
    if tensor.is_sparse and op != "SUM":
        raise RuntimeError(f"{backend} has no {op} of sparse tensors: it can only sum them")
    if op not in _FOLDS:
        raise RuntimeError(f"{backend} has no reduce op {op}: use one of {', '.join(_FOLDS)}")
    integral = not dtype.is_floating_point
    if op == "AVG" and integral:
        raise RuntimeError(f"AVG needs a floating-point dtype, this tensor is {dtype}")
    if bitwise and not integral:
        raise RuntimeError(f"{op} needs an integer dtype, this tensor is {dtype}")


def combine(op: str, ins: list[Tensors], root: int, reduce_op: str | None) -> list[Tensors]:
    """What each rank gets, from what each rank gave: lists by group rank."""
    n, name = len(ins), reduce_op or ""
    if "reduce" in op:
        total = [reduce_tensors(column, name) for column in zip(*ins, strict=True)]
        if not op.startswith("reduce_scatter"):
            return [total if op != "reduce" or r == root else [] for r in range(n)]
        many = len(total) // n  # one block of each tensor for each rank
        return [total[r * many : (r + 1) * many] for r in range(n)]
    if op == "broadcast":
        return [ins[root]] * n
    if op.startswith("all_gather"):
        return [[t for row in ins for t in row]] * n
    if op == "gather":
        return [[row[0] for row in ins] if r == root else [] for r in range(n)]
    if op == "scatter":
        return [[block] for block in ins[root]]
    if op.startswith("all_to_all"):
        return [[row[r] for row in ins] for r in range(n)]
    return [[] for _ in range(n)]
