"""The common form of all error texts: who does what, and where.

Real and simulated ranks fail in the same ways, so both engines take their words from this package:
facts go in (Events, Waits, outcomes), and an error with its complete text comes out.

    Deadlock: every rank waits for another.                      headline
      rank 0 waits in recv(src=1)   cell [7], line 5:  …         rows: what a rank does, and where
      rank 1 waits in recv(src=0)   cell [7], line 5:  …
    0 → 1 → 0. One of them has to send before it receives.       the way out
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from course_lib.collectives import collective
from course_lib.trace import Event, Line

_MOST_ROWS = 16
Row = tuple[str, Line | None]  # what a rank does, and where


def call_text(event: Event) -> str:
    """The call as a reader would write it: ``recv(src=1)``, ``all_reduce(SUM)``."""
    words = [event.reduce_op] if event.reduce_op else []
    if event.peer is not None:
        to_peer = event.is_send or collective(event.op).root == "gets"
        words.append(f"{'dst' if to_peer else 'src'}={event.peer}")
    if event.tag:
        words.append(f"tag={event.tag}")
    return f"{call_name(event)}({', '.join(words)})"


def call_name(event: Event) -> str:
    """What the reader has called; for ``broadcast_object_list`` and its like torch makes several
    calls, each an Event of its own.
    """
    return event.within if "_object" in event.within else event.name


def ranks_text(ranks: Collection[int]) -> str:
    """``rank 3``, ``ranks 0 and 2``, ``ranks 0, 1 and 2``; long lists are cut."""
    names = [str(r) for r in sorted(ranks)]
    if len(names) == 1:
        return f"rank {names[0]}"
    if len(names) > 8:
        names = [*names[:6], f"{len(names) - 6} more"]
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def ranks_have(ranks: Collection[int]) -> str:
    return f"{ranks_text(ranks)} {'has' if len(ranks) == 1 else 'have'}"


def among(groups: Mapping[str, Sequence[int]], used: Collection[str]) -> dict[str, str]:
    """What to write of each group after a call, if several groups are used: its ranks, and its
    number if two groups have the same ranks; "" if only one is used.
    """
    members = [tuple(groups[name]) for name in set(used)]
    return {
        name: (len(members) > 1) * f" among {ranks_text(ranks)}"
        + (members.count(tuple(ranks)) > 1) * f" (group {name})"
        for name, ranks in groups.items()
    }


def row(event: Event, how: str = "") -> Row:
    """The row of one call; ``how`` is what follows its name."""
    return f"rank {event.rank} calls {call_text(event)}{how}", event.line


def error_text(headline: str, rows: Sequence[Row], advice: str, parted: Sequence[str] = ()) -> str:
    """An error's text: what happened; in two columns what each rank does and its line; where the
    ranks had ``parted``, if they had; and the way out.
    """
    return "\n".join([headline, *table(rows), *parted, advice])


def table(rows: Sequence[Row]) -> list[str]:
    """The rows in two columns, indented; long tables are cut."""
    width = max(len(what) for what, _ in rows)
    lines = [f"  {what:<{width}}   {line or ''}".rstrip() for what, line in rows[:_MOST_ROWS]]
    if len(rows) > _MOST_ROWS:
        lines.append(f"  … and {len(rows) - _MOST_ROWS} more ranks")
    return lines
