"""What each rank's gradients are to one process's, in a sentence for each tensor.

    compare_gradients(whole, parts)
      cuts.py     which piece of the whole should each rank hold? its shapes tell
      kinds.py    what is the tensor to that piece: equal, n times it, a share of it, …

>>> whole = gradients(model)                              # one process, the whole batch
>>> compare_gradients(whole, run(train_step).results)     # n ranks, each returned its own
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from course_lib.diagnosis.lines import ranks_text
from course_lib.errors import CourseError
from course_lib.gradient_comparison.cuts import cuts
from course_lib.gradient_comparison.kinds import VAGUE, Compared, kind_of, size
from course_lib.trace import Run

Gradients = Mapping[str, Tensor | None]
HOW = "{name: p.grad for name, p in model.named_parameters()}"


@dataclass(frozen=True, slots=True)
class Finding:
    """What the ranks have for one name: the ``kind``, and a sentence."""

    name: str
    kind: str
    text: str


class Findings(list[Finding]):
    """A Finding for each name; printed, those that are not equal."""

    def __repr__(self) -> str:
        wrong = [finding for finding in self if finding.kind != "equal"]
        if not wrong:
            return f"All equal ({len(self)} of {len(self)})."
        names, kinds = (max(len(getattr(f, k)) for f in wrong) for k in ("name", "kind"))
        rows = [f"  {f.name:<{names}}   {f.kind:<{kinds}}   {f.text}" for f in wrong]
        return "\n".join([f"Not equal ({len(wrong)} of {len(self)}):", *rows])


def compare_gradients(
    whole: Gradients, parts: Run | Sequence[Gradients], *, dtype: torch.dtype | None = None
) -> Findings:
    """What the ranks' gradients are to those of one process.

    Args:
        whole: one process's gradients by name, over the whole batch; None where there is none.
        parts: by rank, the same of its own tensors: whole, or the rank's piece. A name may be
            left out on ranks that do not have the tensor. A Run whose results are these also
            tells which calls had a tensor of that shape.
        dtype: the coarsest dtype that anything was computed in, where that is coarser than the
            gradients' own (autocast).

    Returns:
        a Finding for each name, in the order of ``whole``; then for each name that only ranks have.

    Raises:
        CourseError: these are no gradients by name, or no name of ``whole`` is on any rank.
    """
    results = list(parts.results if isinstance(parts, Run) else parts)
    _refuse(whole, results)
    extra = {name: None for part in results for name in part if name not in whole}
    sizes = [size(_plain(t)) for t in whole.values() if t is not None]
    largest = max(filter(math.isfinite, sizes), default=0.0)
    found = Findings()
    for name, want in {**whole, **extra}.items():
        got = {rank: part[name] for rank, part in enumerate(results) if name in part}
        kind, text = _compare(want, got, len(results), dtype, largest)
        if isinstance(parts, Run) and kind != "equal":
            text += _calls(parts, got)
        found.append(Finding(name, kind, text))
    return found


def _refuse(whole: Any, results: list[Any]) -> None:
    for what, value in [("whole", whole), *((f"rank {r}'s", p) for r, p in enumerate(results))]:
        if not isinstance(value, Mapping):
            raise CourseError(f"{what} gradients are a {type(value).__name__}: give a dict, {HOW}")
        for name, t in value.items():
            if t is not None and not _has_numbers(t):
                raise CourseError(f"{what} {name!r} is no tensor of floating-point numbers: {t!r}")
    if not results:
        raise CourseError("parts is empty: give a dict of gradients for each rank")
    names = {name: None for part in results for name in part}
    if whole and names and not names.keys() & whole.keys():
        one, other = next(iter(whole)), next(iter(names))
        raise CourseError(f"no name of whole is on any rank ({one!r}, {other!r}): name them alike")


def _has_numbers(t: Any) -> bool:
    there = isinstance(t, Tensor) and not t.is_meta
    return there and (t.is_floating_point() or t.is_complex())


def _compare(
    want: Tensor | None,
    got: dict[int, Tensor | None],
    n: int,
    dtype: torch.dtype | None,
    largest: float,
) -> tuple[str, str]:
    """Kind and sentence of one name, whose tensors are ``got`` on the ranks that have it."""
    tensors = {rank: _plain(t) for rank, t in got.items() if t is not None}
    without = [rank for rank, t in got.items() if t is None]
    some = [rank for rank, t in tensors.items() if size(t)]
    if want is None and some:
        return "none", f"there is one on {ranks_text(some)}, and none in one process"
    if not got:
        return "none", "no rank has a tensor of this name"
    full = torch.zeros(()) if want is None else _plain(want)
    if want is None or not (tensors or size(full)):
        return "equal", "no gradient, or zero"
    known = cuts(full, [t.shape for t in tensors.values()]) if tensors else []
    complete = known and any(t.shape != full.shape for t in tensors.values())
    if without and size(full) and not complete:
        return "none", f"no gradient on {ranks_text(without)}"
    if not known:
        shapes = ", ".join(str(tuple(t.shape)) for t in tensors.values())
        return "shape", f"{shapes} by rank: neither {tuple(full.shape)} nor a cut of it"
    odd = [f"on rank {rank}" for rank, t in tensors.items() if not t.isfinite().all()]
    odd += [] if full.isfinite().all() else ["in one process"]
    if odd:
        return "differs", f"NaN or infinite entries {', '.join(odd)}: not to be compared"
    coarsest = [dtype] if dtype else []
    dtypes = [*coarsest, want.dtype, *(t.dtype for t in got.values() if t is not None)]
    eps = max(torch.finfo(each).eps for each in dtypes)
    held = [*tensors.values()]
    of_cuts = [Compared(held, cut, [*tensors], n, size(full), eps**0.5 / 3) for cut in known]
    kind, text = kind_of(of_cuts)
    # where terms cancel, what is left is rounding alone
    if kind in VAGUE and all(size(t) <= 4 * eps * largest for t in (full, *held)):
        return "equal", "next to zero beside the other gradients"
    return kind, text


def _plain(t: Tensor) -> Tensor:
    """The tensor on the CPU, dense, in double precision; of a DTensor, what this rank holds."""
    t = t.detach()
    t = t.to_local() if hasattr(t, "to_local") else t
    t = t.to_dense() if t.layout != torch.strided else t
    return t.cpu().to(torch.complex128 if t.is_complex() else torch.float64)


def _calls(run: Run, got: dict[int, Tensor | None]) -> str:
    """Which recorded calls had a tensor of this shape; a bucket has another shape."""
    if run.trace.note:
        return ""
    shapes = {rank: tuple(_plain(t).shape) for rank, t in got.items() if t is not None}
    calls = [e for e in run.trace.by_rank if e.is_collective and e.shape == shapes.get(e.rank)]
    lines = list(dict.fromkeys(f"{e.op}, {e.line}" if e.line else e.op for e in calls))
    if not lines:
        return ". No recorded collective had a tensor of its shape"
    more = f" and {len(lines) - 2} more" if len(lines) > 2 else ""
    return f". Collectives with a tensor of its shape: {'; '.join(lines[:2])}{more}"
