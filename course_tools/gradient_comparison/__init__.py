"""Says in a sentence for each tensor how the ranks' gradients differ from one process's.

    gradients(model)                in a rank: its piece of each gradient, and the piece's place
    compare_gradients(whole, parts)
      pieces.py   what a rank hands over
      cuts.py     which piece should each rank hold? its place tells, or else its shape
      kinds.py    what does it hold instead: n times the piece, a share of it, another rank's, …

>>> whole = gradients(model)                              # one process, the whole batch
>>> compare_gradients(whole, run(train_step).results)     # each rank returned gradients(model)
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
from course_lib.trace import Run
from course_tools.gradient_comparison.cuts import Cut, cut_by_places, cut_up, guess_cuts, shape_of
from course_tools.gradient_comparison.kinds import VAGUE, Compared, find_kind, peak
from course_tools.gradient_comparison.pieces import Piece, gradients, is_dtensor

__all__ = ["Finding", "Findings", "Piece", "compare_gradients", "gradients"]

Gradients = Mapping[str, Tensor | Piece | None]
HOW = "gradients(model)"
ORDER = ". By the order of the ranks: if yours is another, say it in gradients(model, places=…)"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is found for one name: its ``kind``, and a sentence."""

    name: str
    kind: str
    text: str


class Findings(list[Finding]):
    """A Finding for each name. Printed, it shows those that are not equal.

    ``within`` says by dtype which share of a tensor's largest entry was taken for rounding.
    """

    within: dict[str, float]

    def __repr__(self) -> str:
        wrong = [finding for finding in self if finding.kind != "equal"]
        if not wrong:
            shares = [f"{100 * share:.1g}% ({dtype})" for dtype, share in self.within.items()]
            within = f", each within {' or '.join(shares)} of its largest entry" if shares else ""
            return f"All equal ({len(self)} of {len(self)}){within}."
        names, kinds = (max(len(getattr(f, k)) for f in wrong) for k in ("name", "kind"))
        rows = [f"  {f.name:<{names}}   {f.kind:<{kinds}}   {f.text}" for f in wrong]
        return "\n".join([f"Not equal ({len(wrong)} of {len(self)}):", *rows])


def compare_gradients(
    whole: Gradients, parts: Run | Sequence[Gradients], *, dtype: torch.dtype | None = None
) -> Findings:
    """Compare the ranks' gradients with those of one process.

    Args:
        whole: one process's gradients by name, over the whole batch; None where there is none.
        parts: by rank, what ``gradients(model)`` gave there, or a dict of tensors: whole, or the
            rank's piece. A name may be left out on ranks that do not have the tensor. A Run whose
            results are these also tells which calls had a tensor of that shape.
        dtype: the coarsest dtype that anything was computed in, if it is coarser than the
            gradients' own (autocast).

    Returns:
        a Finding for each name, in the order of ``whole``; then for each name that only ranks have.

    Raises:
        CourseError: these are no gradients by name, or no name of ``whole`` is on any rank.
    """
    results = list(parts.results if isinstance(parts, Run) else parts)
    _refuse(whole, results)
    extra = {name: None for part in results for name in part if name not in whole}
    tensors = (_make_plain(t).tensor for t in whole.values())
    largest = max(filter(math.isfinite, (peak(t) for t in tensors if t is not None)), default=0.0)
    found = Findings()
    found.within = {}
    for name, value in {**whole, **extra}.items():
        want = _make_plain(value).tensor
        got = {rank: _make_plain(part[name]) for rank, part in enumerate(results) if name in part}
        coarsest = _find_coarsest(dtype, [want, *(piece.tensor for piece in got.values())])
        kind, text = _compare_tensor(want, got, len(results), coarsest, largest)
        if name in extra and kind == "none":
            text = text.replace("none in one process", "no tensor of this name in one process")
        if text == "within rounding":
            found.within[str(coarsest).removeprefix("torch.")] = _tolerance(coarsest)
        if isinstance(parts, Run) and kind != "equal":
            text += _say_calls(parts, got)
        found.append(Finding(name, kind, text))
    return found


def _find_coarsest(dtype: torch.dtype | None, tensors: list[Tensor | None]) -> torch.dtype:
    dtypes = [*([dtype] if dtype else []), *(t.dtype for t in tensors if t is not None)]
    return max(dtypes, key=lambda each: torch.finfo(each).eps, default=torch.float64)


def _tolerance(dtype: torch.dtype) -> float:
    """The share of a tensor's largest entry that rounding explains."""
    return torch.finfo(dtype).eps ** 0.5 / 3


def _refuse(whole: Any, results: list[Any]) -> None:
    for what, value in [("whole", whole), *((f"rank {r}'s", p) for r, p in enumerate(results))]:
        if not isinstance(value, Mapping):
            raise CourseError(f"{what} gradients are a {type(value).__name__}: give a dict, {HOW}")
        for name, held in value.items():
            t = held.tensor if isinstance(held, Piece) else held
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


def _compare_tensor(
    want: Tensor | None, got: dict[int, Piece], n: int, dtype: torch.dtype, largest: float
) -> tuple[str, str]:
    """Find the kind and the sentence for one name; ``got`` is what the ranks have under it."""
    tensors = {rank: piece.tensor for rank, piece in got.items() if piece.tensor is not None}
    some = [rank for rank, t in tensors.items() if peak(t)]
    if want is None and some:
        return "none", f"there is one on {ranks_text(some)}, and none in one process"
    if not got:
        return "none", "no rank has a tensor of this name"
    if want is None or not (tensors or peak(want)):
        return "equal", "no gradient, or zero"
    placed = all(piece.place is not None for piece in got.values())
    known = cut_by_places(want, got) if placed else guess_cuts(want, tensors)
    if without := _find_lacking(want, got, known, placed):
        return "none", f"no gradient on {ranks_text(without)}"
    if not known:
        shapes = ", ".join(str(tuple(t.shape)) for t in tensors.values())
        return "shape", f"{shapes} by rank: neither {tuple(want.shape)} nor a cut of it"
    lost = (t.want for t in cut_up(known[0], tensors) if not t.got and peak(t.want))
    if missing := sum(t.numel() for t in lost):
        return "shape", f"{missing} of its {want.numel()} entries are on no rank"
    odd = [f"on rank {rank}" for rank, t in tensors.items() if not math.isfinite(peak(t))]
    odd += [] if math.isfinite(peak(want)) else ["in one process"]
    if odd:
        return "differs", f"NaN or infinite entries {', '.join(odd)}: not to be compared"
    mesh = _read_mesh(got)
    within = _tolerance(dtype)
    by_cut = [
        Compared(tensors, cut, n, peak(want), within, mesh, cut_up(cut, tensors)) for cut in known
    ]
    kind, text = find_kind(by_cut)
    if kind == "other-part" and not placed:
        text += ORDER
    # Beside the other gradients this one is zero: its terms cancel, and only rounding is left.
    nothing = 4 * torch.finfo(dtype).eps * largest
    if kind in VAGUE and all(peak(t) <= nothing for t in (want, *tensors.values())):
        return "equal", "next to zero beside the other gradients"
    return kind, text


def _find_lacking(want: Tensor, got: dict[int, Piece], known: list[Cut], placed: bool) -> list[int]:
    """Find the ranks that have no gradient, and should have one."""
    without = [rank for rank, piece in got.items() if piece.tensor is None]
    if placed and known:
        (cut,) = known
        nothing = {r: cut.whole.new_zeros(()).expand(shape_of(cut.places[r])) for r in without}
        held = [t for t in cut_up(cut, nothing) if peak(t.want)]
        return [rank for rank in without if any(rank in t.got for t in held)]
    tensors = [piece.tensor for piece in got.values() if piece.tensor is not None]
    complete = known and any(t.shape != want.shape for t in tensors)
    return without if peak(want) and not complete else []


def _read_mesh(got: dict[int, Piece]) -> dict[str, dict[int, int]]:
    """Read the ranks' coordinates by mesh dimension; none unless all ranks know the same ones."""
    names = [*next(iter(got.values())).mesh]
    if any([*piece.mesh] != names for piece in got.values()):
        return {}
    at = {name: {rank: piece.mesh[name] for rank, piece in got.items()} for name in names}
    return {name: by_rank for name, by_rank in at.items() if len({*by_rank.values()}) > 1}


def _make_plain(value: Any) -> Piece:
    """Make a piece whose tensor is dense and on the CPU; of a DTensor, the rank's own part."""
    piece = value if isinstance(value, Piece) else Piece(value)
    if piece.tensor is None:
        return piece
    t = piece.tensor.detach()
    t = t.to_local() if is_dtensor(t) else t
    t = t.to_dense() if t.layout != torch.strided else t
    return piece._replace(tensor=t.cpu())


def _say_calls(run: Run, got: dict[int, Piece]) -> str:
    """Say which recorded calls had a tensor of this shape. A bucket has another shape."""
    if run.trace.note:
        return ""
    shapes = {rank: tuple(p.tensor.shape) for rank, p in got.items() if p.tensor is not None}
    calls = [e for e in run.trace.by_rank if e.is_collective and e.shape == shapes.get(e.rank)]
    lines = list(dict.fromkeys(f"{e.op}, {e.line}" if e.line else e.op for e in calls))
    if not lines:
        return ". No recorded collective had a tensor of its shape"
    more = f" and {len(lines) - 2} more" if len(lines) > 2 else ""
    return f". Collectives with a tensor of its shape: {'; '.join(lines[:2])}{more}"
