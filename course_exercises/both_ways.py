"""What is asked of a function that is driven forward and backward: its calls in each pass, and what
a wrong gradient is to one process's. ``drivers/driven.py`` has what drives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch

from course_check.exercise import Finding, Play, Rule
from course_check.usual_diagnoses import OfPlay
from course_exercises.gradients import passes
from course_tools.gradient_comparison import compare_gradients


def calls_at_most(numbers: Callable, calls: int, size: str = "nbytes") -> Rule:
    """At most so many collectives a pass, and so many numbers in them: ``numbers(play, output)``,
    forward and backward. ``size``: which attribute of an Event counts."""

    def rule(play: Play) -> Iterator[Finding]:
        for rank, when, events in passes(play):
            out = play.given(rank).upstream
            most = numbers(play, out)[when == "backward"] * out.itemsize
            made = [e for e in events if e.is_collective]
            if sum(getattr(e, size) for e in made) > most or len(made) > calls:
                said = ", ".join(f"{e.op} of {e.nbytes} bytes" for e in made)
                yield Finding("calls", f"rank {rank}, {when}: {said}; at most {most} bytes", rank)

    return rule


def backward(cut: Mapping[str, int], kind: str, *names: str) -> OfPlay:
    """Forward is right, and ``compare_gradients`` says this kind of one of these gradients, or of
    any; the factors ``n`` and ``1/n`` count as kinds. ``cut``: along which dimension a tensor's
    parts lie side by side on the ranks; others are whole on each."""

    def when(play: Play) -> bool:
        if not play.done or play.wrong != ["grad"]:
            return False
        wants, gots = ([one.args[0] for one in seen[0]] for seen in (play.expected, play.seen))
        asked = [f"{name}.grad" for name in names] or [n for n in wants[0] if n.endswith(".grad")]
        whole = {}
        for name in asked:
            parts, dim = [want[name] for want in wants], cut.get(name.removesuffix(".grad"))
            whole[name] = parts[0] if dim is None else torch.cat(parts, dim)
        found = compare_gradients(whole, [{name: got[name] for name in asked} for got in gots])
        factor = f"{kind.replace('n', str(play.case.world))} times"
        return any(f.kind == kind or f.text.startswith(factor) for f in found)

    return when


DRIVEN = {
    "no-gradient": "In backward some tensor gets no gradient: a detach, no_grad or a tensor "
    "without history stands in the way, or this rank has left the tensor out.",
    "summed-again": "In backward a gradient is n times too large. The loss is the same on all "
    "ranks, and counts once: what is added up that every rank has whole already?",
    "divided": "In backward a gradient is n times too small.",
}


def driven(**cut: int) -> dict[str, OfPlay]:
    """When these hints are true."""
    return dict(zip(DRIVEN, [backward(cut, kind) for kind in ("none", "n", "1/n")], strict=True))
