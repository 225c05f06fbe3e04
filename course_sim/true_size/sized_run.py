"""What came of a run at its true size: seconds, kernels by kind, and memory against the GPU's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from course_lib.trace import Run, Trace
from course_sim.rank import Rank
from course_sim.true_size.hardware import GPU
from course_sim.true_size.sized_gpu import SizedGpu

_SHOWN = 12  # kinds; the others are one row
_GIB = 2**30


class Kind(NamedTuple):
    """All kernels of one kind that a rank's GPU ran."""

    name: str
    number: int
    seconds: float
    flops: int
    nbytes: int


class Table:
    """Rows of text under a heading, aligned in plain text and as HTML in a notebook."""

    def _rows(self) -> list[Sequence[str]]:
        raise NotImplementedError

    def __repr__(self) -> str:
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for first, *others in rows:
            cells = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
            lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in cells) + "</tr>"

        heading, *rows = self._rows()
        return f"<table>{row(heading, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"


class Kernels(Table):
    """What one rank's GPU ran, by kind of kernel, the longest first."""

    def __init__(self, costs: dict[str, list[Any]]) -> None:
        kinds = [Kind(name, *total) for name, total in costs.items()]
        self.kinds = sorted(kinds, key=lambda kind: -kind.seconds)
        self.total = _add("all kernels", self.kinds)

    def _rows(self) -> list[Sequence[str]]:
        shown = self.kinds[:_SHOWN]
        if rest := self.kinds[_SHOWN:]:
            shown = [*shown, _add(f"{len(rest)} other kinds", rest)]
        return [
            ("kernels", "number", "ms", "share", "TFLOP", "GB"),
            *map(self._row, [*shown, self.total]),
        ]

    def _row(self, kind: Kind) -> Sequence[str]:
        share = kind.seconds / (self.total.seconds or 1)
        flops = f"{kind.flops / 1e12:,.2f}" if kind.flops else ""
        times = f"{kind.seconds * 1e3:,.2f}", f"{share:.1%}"
        return kind.name, f"{kind.number:,}", *times, flops, f"{kind.nbytes / 1e9:,.2f}"


def _add(name: str, kinds: Sequence[Kind]) -> Kind:
    """All these kinds as one."""
    columns = [kind[1:] for kind in kinds] or [(0, 0.0, 0, 0)]
    return Kind(name, *map(sum, zip(*columns, strict=True)))


class Memory(Table):
    """The most bytes that were alive on each rank that ran, beside what its GPU has."""

    def __init__(self, trace: Trace, gpu: GPU) -> None:
        curves = trace.memory.items()
        self.by_rank = {rank: max(step[1] for step in curve) for rank, curve in curves}
        self.peak = max(self.by_rank.values(), default=0)
        self.gpu = gpu

    @property
    def fits(self) -> bool:
        return self.peak <= self.gpu.memory

    def _rows(self) -> list[Sequence[str]]:
        has = self.gpu.memory
        return [
            ("rank", "peak, GiB", f"of {has / _GIB:.4g}"),
            *(
                (f"{rank}", f"{peak / _GIB:.2f}", f"{peak / has:.0%}" + "  too much" * (peak > has))
                for rank, peak in self.by_rank.items()
            ),
        ]


def add_kernels(run: Run, gpu: GPU, played: Sequence[Rank]) -> SizedRun:
    """The Run of a program at its true size, with what the GPUs of the ranks that ran have done."""
    costs = {rank.number: rank.gpu.costs for rank in played if isinstance(rank.gpu, SizedGpu)}
    kernels = {rank: Kernels(by_kind) for rank, by_kind in costs.items()}
    return SizedRun(**vars(run), gpu=gpu, kernels=kernels)


@dataclass(frozen=True, kw_only=True)
class SizedRun(Run):
    """A Run with ``gpu``: ``kernels[r]`` is the table of rank r, if it was played. ``memory`` has
    the ``peak`` of the bytes that were alive, and says whether it ``fits``; ``trace.memory`` has
    the curves, which ``draw.memory(run)`` draws.
    """

    gpu: GPU
    kernels: dict[int, Kernels]

    @property
    def memory(self) -> Memory:
        return Memory(self.trace, self.gpu)
