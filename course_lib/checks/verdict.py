"""What a check says: a table by level, the smallest case that fails, a diagnosis, a hint.

The text is the same every time for the same answer: no times, no addresses, no paths.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from course_lib.checks.compare import alike, cut, left, same, show, show_apart
from course_lib.checks.diagnose import Evidence, Explanation
from course_lib.checks.exercise import Finding, Play
from course_lib.trace import Run

ROUNDING = 1e-6  # of a model that is wrong, tensors that differ by this much are not shown
VALUES = ("returned", "type", "left", "argument changed")  # findings that a table shows
WIDE = 104  # characters of a row: with its indent what JupyterLab shows beside its file browser
MOST = 6  # findings beside the table; more would say the same of more ranks
NARROW = 24  # what a column keeps of them where others need room


@dataclass
class LevelResult:
    """How one level went. ``play`` is the case that shows how it fails, ``explanation`` why."""

    evidence: Evidence
    reached: bool = True  # False: an earlier case hung or died, and this level was not played out
    play: Play | None = None
    case: str = ""  # of this play, in words
    explanation: Explanation | None = None

    @property
    def passed(self) -> bool:
        return self.reached and not self.evidence.failed

    @property
    def findings(self) -> list[Finding]:
        if self.play is None:
            return []
        return self.play.findings or self.play.broken


@dataclass
class Verdict:
    """The outcome of a check. ``passed`` means full marks."""

    title: str
    worth: dict[str, int]
    levels: dict[str, LevelResult] = field(default_factory=dict)
    written: bool = True
    ungraded: tuple[str, ...] = ()  # what could not be looked at on this machine

    @property
    def passed(self) -> bool:
        return self.written and not self.ungraded and all(r.passed for r in self.levels.values())

    @property
    def failed(self) -> bool:
        """Something is wrong with the answer; not passed alone may be the machine's fault."""
        return not self.written or not all(r.passed for r in self.levels.values())

    @property
    def points(self) -> int:
        return sum(self.worth[level] for level in self.levels if self.pays(level))

    def pays(self, level: str) -> bool:
        """A level pays where core has passed, too: that a wrong answer says little is no merit."""
        return all(name in self.levels and self.levels[name].passed for name in ("core", level))

    @property
    def first_failing(self) -> LevelResult | None:
        return next((r for r in self.levels.values() if not r.passed and r.play), None)

    @property
    def diagnosis(self) -> str | None:
        if not self.written:
            return "not-written"
        level = self.first_failing
        return level.explanation.id if level and level.explanation else None

    @property
    def run(self) -> Run | None:
        """The run of the smallest case that fails, for ``draw``."""
        level = self.first_failing
        return level.play.run if level and level.play else None

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if not self.written:
            return f"{self.title}: not written yet"
        state = "passed" if self.passed else f"{self.points} of 100 points"
        lines = [f"{self.title}: {state}"]
        lines += [
            _row(name, self.worth[name], self.levels.get(name), self.pays(name))
            for name in self.worth
        ]
        lines += [f"  not graded on this machine: {what}" for what in self.ungraded]
        if level := self.first_failing:
            lines += ["", *_story(level)]
        return "\n".join(part for line in lines for part in _folded(line))

    def as_json(self) -> dict[str, Any]:
        """What ``python -m course_lib check --json`` prints."""
        out: dict[str, Any] = {
            "exercise": self.title, "passed": self.passed, "points": self.points,
            "levels": {name: _level_json(r) for name, r in self.levels.items()},
        }  # fmt: skip
        if not self.written:
            return out | {"diagnosis": "not-written", "case": None, "hint": NOT_WRITTEN_HINT}
        if (level := self.first_failing) and level.explanation:
            out |= {"diagnosis": level.explanation.id, "case": case_json(level),
                    "hint": level.explanation.hint}  # fmt: skip
        if self.ungraded:
            out["ungraded"] = list(self.ungraded)
        return out


NOT_WRITTEN_HINT = "Replace the line that raises NotImplementedError by your answer."


def _row(name: str, worth: int, level: LevelResult | None, pays: bool) -> str:
    if level is None:
        return f"  {name:<7}{0:>3}   not graded"
    if level.passed:
        said = f"   {_count(level.evidence)}" if pays else ", and pays nothing without core"
        return f"  {name:<7}{worth if pays else 0:>3}   passed{said}"
    if not level.evidence.failed:
        why = (
            "counts once core passes"
            if name == "budget"
            else "not played: a case before it did not end"
        )
        return f"  {name:<7}{0:>3}   {why}"
    assert level.explanation is not None
    why = level.explanation.id
    return f"  {name:<7}{0:>3}   failed" + ("" if why.endswith("values-differ") else f"   {why}")


def _folded(line: str) -> list[str]:
    """In parts that JupyterLab need not break, indented as the line is."""
    if len(line) <= WIDE + 2:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(line, WIDE, subsequent_indent=indent + "  ", break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


def _count(evidence: Evidence) -> str:
    worlds = sorted({p.case.world for p in evidence.plays})
    ranks = f"{worlds[0]} to {worlds[-1]} ranks" if len(worlds) > 1 else f"{worlds[0]} ranks"
    ranks = "" if worlds == [1] else f", {ranks}"  # a formula has no ranks
    real = any(p.world != "simulated" for p in evidence.plays)
    return f"{len(evidence.plays)} cases{ranks}" + (", one of them on real ranks" if real else "")


def _story(level: LevelResult) -> list[str]:
    assert level.play is not None
    assert level.explanation is not None
    play = level.play
    where = "" if play.world == "simulated" else f", {play.world}"
    lines = [f"{level.evidence.level}, the smallest case that shows it: {level.case}{where}"]
    lines += [f"  {line}" for line in _findings(level, play)]
    return [*lines, "", f"{level.explanation.id}: {level.explanation.hint}"]


def _findings(level: LevelResult, play: Play) -> list[str]:
    said: list[str] = []
    values = [f for f in level.findings if f.kind in VALUES]
    if values:
        said += _table(play, values)
    whose: dict[str, list[Finding]] = {}  # by text: those that do not say by themselves whose
    for finding in (f for f in level.findings if f not in values):
        told = finding.rank is None or f"rank {finding.rank}" in finding.text
        whose.setdefault(finding.text, []).extend([] if told else [finding])
    for text, those in list(whose.items())[:MOST]:
        said += (f"{_whose(play, those)}: {text}" if those else text).splitlines()
    said += [f"and {len(whose) - MOST} findings more"] if len(whose) > MOST else []
    return list(dict.fromkeys(said))[:40]


def _whose(play: Play, those: list[Finding]) -> str:
    """Of which ranks this is said, and of which of several calls."""
    by_call: dict[int, list[str]] = {}
    for finding in those:
        by_call.setdefault(finding.call, []).append(str(finding.rank))
    words = [("ranks " if ranks[1:] else "rank ") + ", ".join(ranks) for ranks in by_call.values()]
    if play.case.calls > 1:
        words = [f"{word} in call {call + 1}" for call, word in zip(by_call, words, strict=True)]
    return "; ".join(words)


def _table(play: Play, values: list[Finding]) -> list[str]:
    """Rank by rank: what went in, what came out, what should have, and where they differ.

    A rank that is alone needs no column for its number; a formula has no ranks at all.
    """
    outcome = "rank" if play.case.world > 1 else ""
    returned = "returned" if play.case.calls == 1 else "returned, in the end"
    heads = {"has": ("has", "should have"), "returns": (returned, "should return")}
    kinds = {f.text for f in values}
    head = heads[kinds.pop()] if len(kinds) == 1 else ("outcome", "should be")
    rows = [[outcome, "was called with", *head, ""]]
    for f in (part for finding in values for part in _parts(play, finding)):
        note = "changed, and should not be" if f.kind == "argument changed" else _where(f)
        rows.append([_rank(play, f), f.text, *show_apart(f.got, f.want), note])
    rows = [row[play.case.world == play.case.calls == 1 :] for row in rows[:9]]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for i, part in ((-4, 1), (-3, 2), (-2, 1)):  # what went in is cut first, then both others
        spare = sum(wide) + 2 * (len(wide) - 1) - WIDE
        wide[i] -= max(0, min(-(-spare // part), wide[i] - NARROW))
    return ["  ".join(cut(cell, w).ljust(w) for cell, w in zip(row, wide, strict=True)).rstrip()
            for row in rows]  # fmt: skip


def _rank(play: Play, f: Finding) -> str:
    """The number of a finding's rank, and of its call where there are several."""
    call = f"call {f.call + 1}" if play.case.calls > 1 else ""
    return ", ".join(filter(None, (str(f.rank) if play.case.world > 1 or not call else "", call)))


def _parts(play: Play, f: Finding) -> Iterator[Finding]:
    """The finding with what its rank was given for text; of a model or a dict, each entry that
    differs."""
    assert f.rank is not None
    given, text = play.inputs[f.call][f.rank], ", ".join(map(show, play.inputs[f.call][f.rank]))
    if not (isinstance(f.got, dict) and isinstance(f.want, dict)):
        yield replace(f, text=text)
        return
    states = map(left, given) if f.text == "has" else ()
    before = next((b for b in states if isinstance(b, dict) and f.want.keys() <= b.keys()), {})
    wrong = [k for k in f.want if not same(f.got.get(k), f.want[k], ROUNDING)]
    for key in wrong or list(f.want)[:1]:
        got, want = f.got.get(key), f.want[key]
        if key in before:
            yield replace(f, text=f"{key} {show(before[key])}", got=got, want=want)
        else:
            yield replace(f, text=text, got={key: got}, want={key: want})


def _where(f: Finding) -> str:
    if f.kind == "type" and not isinstance(f.want, type(None)):
        got, want = (("an " if n[0] in "aeiou" else "a ") + n for n in (
            type(f.got).__name__, type(f.want).__name__))  # fmt: skip
        return f"{got}, not {want}"
    if isinstance(f.got, Tensor) and isinstance(f.want, Tensor):
        if f.got.dtype != f.want.dtype:
            return "another dtype"
        if f.got.shape != f.want.shape:
            return "another shape"
        at = (~alike(f.got, f.want)).flatten().nonzero().flatten().tolist()
        if len(at) == f.got.numel() > 1:
            return "all differ"
        return f"differs at {', '.join(map(str, at[:6]))}" + (" …" if len(at) > 6 else "")
    return ""


def case_json(level: LevelResult) -> dict[str, Any]:
    """The smallest failing case as plain data."""
    assert level.play is not None
    play = level.play
    return {
        "text": level.case, "ranks": play.case.world, "length": play.case.length,
        "dtype": play.case.dtype, "layout": play.case.layout, "where": play.world,
        "what": _findings(level, play),
        "options": {k: show(v) for k, v in play.case.options.items()},
        "got": [_plain(f.got) for f in level.findings],
        "expected": [_plain(f.want) for f in level.findings],
    }  # fmt: skip


def _plain(value: Any) -> Any:
    return None if value is None else show(value)


def _level_json(level: LevelResult) -> Any:
    if level.passed:
        return "passed"
    return case_json(level) if level.play else "not reached"
