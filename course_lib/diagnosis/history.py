"""How ranks came to where they are: each one's collective calls of a group, in order.

If two calls met and do not fit, one of two things has happened. Either they belong together, and
one of them is wrong. Or a rank has left a call out earlier, and since then every call meets one
that was not meant for it: what differs between such calls means nothing. Only the lines of the
calls can tell these cases apart. Ranks that left nothing out are at the same line, or each in its
own branch of an ``if``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from course_lib.branches import passes_both
from course_lib.diagnosis.lines import ranks_text, table
from course_lib.trace import Event, Line


class History(NamedTuple):
    """Each rank's collective calls of one group. Methods named tell_… return lines of text."""

    calls: Mapping[int, Sequence[Event]] = {}  # by rank
    at: int = 0  # the number, from 0, of the calls that met, or should have
    gone: int = 0  # how many earlier calls of each rank were not kept

    # -- where they were -----------------------------------------------------------------------

    def lines_at(self, number: int) -> dict[Line, list[int]]:
        """The ranks at each line at which somebody makes the call of this number."""
        ranks: dict[Line, list[int]] = {}
        for rank, events in sorted(self.calls.items()):
            if len(events) > number and (line := events[number].line) is not None:
                ranks.setdefault(line, []).append(rank)
        return ranks

    def tell_parting(self) -> list[str]:
        """The first call at which ranks were on different lines, before the one that failed.

        Different lines alone are no fault, because an ``if`` has two branches. So nothing is said
        unless the ranks stayed apart from there to the call that failed, and one of them comes to a
        line of another.
        """
        start = self._find_first_apart(self.at)
        if start == self.at:  # two different ways may pass the same line once
            before = self._find_first_apart(self.at - 1)
            start = before if before < self.at - 2 else self.at
        if start == self.at or not self._crosses(start):
            return []
        rows = [(ranks_text(ranks), line) for line, ranks in self.lines_at(start).items()]
        number = start + self.gone + 1
        return [f"They had parted before, at collective call {number}:", *table(rows)]

    def _find_first_apart(self, at: int) -> int:
        """The number of the call from which on, up to ``at``, ranks were never at one line."""
        while at > 0 and len(self.lines_at(at - 1)) > 1:
            at -= 1
        return at

    def _crosses(self, number: int) -> bool:
        """Whether a rank is, at another time, at a line where another rank makes the call of this
        number. Ranks that take turns in two branches do not count: they always meet each other.
        """
        here = self.lines_at(number)
        own = {rank: line for line, ranks in here.items() for rank in ranks}
        return any(
            event.line != own.get(rank)
            and event.line in here
            and self.lines_at(k).keys() != here.keys()
            for rank, events in self.calls.items()
            for k, event in enumerate(events[: self.at + 1])
        )

    def tell_last_together(self) -> list[str]:
        """The last call that all ranks made at one line."""
        for k in reversed(range(self.at)):
            if len(here := self.lines_at(k)) == 1:
                where = f"They were last at one line at collective call {k + self.gone + 1}"
                return [f"{where}:  {next(iter(here))}"]
        return []

    # -- who left what out ---------------------------------------------------------------------

    def has_left_out(self, a: Event, b: Event) -> bool | None:
        """Whether one of two ranks, whose calls met and do not fit, has left a call out; None if
        nothing shows it.
        """
        if a.line is None or b.line is None or self.tell_parting():
            return bool(self.tell_parting())
        if a.line == b.line:  # in a loop, over tensors that may differ
            before = (call for calls in self.calls.values() for call in calls[: self.at])
            return None if any(call.line == a.line for call in before) else False
        return self._crosses(self.at) or passes_both(a.line, b.line) or None

    def tell_fewer(self, a: Event, b: Event) -> list[str]:
        """Which of two ranks has made fewer calls at a line that both have passed."""
        lines: list[str] = []
        for line in filter(None, {a.line, b.line}):
            ranks = {rank: self.calls.get(rank, ())[: self.at + 1] for rank in (a.rank, b.rank)}
            made = {r: sum(call.line == line for call in calls) for r, calls in ranks.items()}
            if all(made.values()) and len({*made.values()}) == 2 and not self.gone:
                lines.append(f"At {line.where}, line {line.number}, {_counts_text(made)}.")
        return lines if len(lines) == 1 else []  # two would say nothing

    def tell_counts(self, ranks: Collection[int]) -> list[str]:
        """How many calls these ranks have made in this group, if the numbers differ; they will make
        no more.
        """
        made = {r: len(self.calls[r]) + self.gone for r in sorted(ranks) if r in self.calls}
        return [f"In this group, {_counts_text(made)}."] if len({*made.values()}) > 1 else []


def _counts_text(made: Mapping[int, int]) -> str:
    """``rank 1 made 3 collective calls, ranks 0 and 2 made 2``."""
    parts: list[str] = []
    for count in sorted({*made.values()}, reverse=True):
        ranks = [rank for rank, own in made.items() if own == count]
        calls = f" collective call{'s' * (count != 1)}"
        parts.append(f"{ranks_text(ranks)} made {count or 'none'}{calls * (not parts)}")
    return ", ".join(parts)
