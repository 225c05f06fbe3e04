"""Where ranks stand that did not come back in time, or stood when they died."""

from __future__ import annotations

import re
from collections.abc import Sequence

from course_lib import explain
from course_lib.errors import Hang, Wait
from course_lib.ranks.rank import Rank
from course_lib.trace import Line
from course_lib.user_code import user_lines


def hang_error(running: Sequence[Rank], timeout: float) -> Hang:
    """The error for ranks that still run, of which each was asked where it stands."""
    lines = [f"{explain.ranks_text([r.number for r in running])} did not return "
             f"within {timeout:g} s."]  # fmt: skip
    waits = []
    for rank in running:
        path = lines_in_dump(rank.stack)
        waits.append(wait := _wait(rank, path))
        lines.append(f"  rank {rank.number} {_doing(wait, rank)}")
        lines += [f"    {line}" for line in path or filter(None, [wait.line])]
    lines.append("If it is only slow, give it longer: run(…, timeout=seconds).")
    return Hang("\n".join(lines), waits=waits)


def _wait(rank: Rank, path: Sequence[Line]) -> Wait:
    event = rank.blocked_in
    if event is None:
        return Wait(rank.number, "", path[-1] if path else None)
    on = tuple(r for r in rank.history.groups.get(event.group, ()) if r != event.rank)
    if event.peer is not None and not event.is_collective:
        on = (event.peer,)
    return Wait(rank.number, explain.call_text(event), rank.history.blocked_at, on, event.group)


def _doing(wait: Wait, rank: Rank) -> str:
    if wait.call:
        return f"waits in {wait.call}"
    return "was running" if rank.stack else "did not answer: it may be stopped"


_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.M)


def lines_in_dump(dump: str) -> list[Line]:
    """The reader's lines in what faulthandler wrote of the main thread, outermost first.

    faulthandler lists the threads with the main one last, and each thread innermost first.
    """
    main = re.split(r"^(?:Current thread|Thread) .*$", dump, flags=re.M)[-1]
    frames = [(file, int(number), function) for file, number, function in _FRAME.findall(main)]
    return user_lines(frames[::-1])
