"""Finding who reads a buffer before its wait: the program runs again, with other poison.

If a result or a message differs, something was read too early. A program that differs from itself
with equal poison, too, is not deterministic: then nothing is said. Whose buffer was read is found
by halving: poison the first k of a rank's buffers the other way, and see whether it matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from course_lib.diagnosis import hazard
from course_lib.errors import Hang, Hazard
from course_sim.tensor_memory import equal

if TYPE_CHECKING:
    from course_sim.engine import Execution


def find_read(first: Execution, again: Callable[..., Execution]) -> Hazard | None:
    """The Hazard if what the program does depends on what was in buffers that were yet to be
    filled. ``again`` executes the program with other poison.
    """
    other = again(side=1)
    rank = _find_difference(first, other)
    if rank is None or _find_difference(first, again()) is not None:
        return None
    if _find_difference(other, again(side=1)) is not None:
        return None
    # with the first ``low`` flipped nothing differs, with the first ``high`` it does
    low, high = 0, len(first.ranks[rank].poisoned)
    while high - low > 1:
        middle = (low + high) // 2
        if _find_difference(first, again(flip=(rank, middle))) is None:
            low = middle
        else:
            high = middle
    record = first.ranks[rank].poisoned[high - 1]
    if record.waited or record.op.op == "recv":
        return hazard.read_before_wait(record.op)
    return hazard.unwaited(record.event())  # of a sum that nobody waits for, what is returned


def _find_difference(a: Execution, b: Execution) -> int | None:
    """The rank that shows a difference first, or None. A rank that sends something else, and has
    poison of its own, comes before one whose result differs.
    """
    if isinstance(b.error, Hang):
        return None  # how far it came within the limit says nothing
    moved = []
    for x, y in zip(a.ranks, b.ranks, strict=True):
        if x.digests != y.digests:
            pairs = zip(x.digests, y.digests, strict=False)
            at = next((p[0] for p, q in pairs if p != q), min(len(x.records), len(y.records)))
            moved.append((x.records[at - 1].issued, x.number))
    if moved:
        return min(moved)[1]
    if type(a.error) is not type(b.error) or str(a.error) != str(b.error):
        return next((r.number for r in a.ranks if r.poisoned), None)
    both = zip(a.ranks, b.ranks, strict=True)
    return next((x.number for x, y in both if x.poisoned and not equal(x.result, y.result)), None)
