"""What a check says: a row for each level, a case that fails, a diagnosis, a hint.

The text is the same every time for the same answer: no times, no addresses, no paths.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from course_check.compare import find_places, same, shorten, show, show_apart
from course_check.diagnose import Level
from course_check.exercise import Finding, Play
from course_check.harness.seen import leaves

ROUNDING = 1e-6  # of a model that is wrong, tensors that differ by this much are not shown
VALUES = ("returned", "type", "left", "argument changed")  # findings that are shown as values
WIDE = 104  # characters of a line: with its indent what JupyterLab shows beside its file browser
WITHOUT_CORE = "passed, and pays nothing without core"
MOST = 6  # values, and other findings; more would say the same of more ranks
NOT_WRITTEN_HINT = "Replace the line that raises NotImplementedError by your answer."


@dataclass
class Verdict:
    """The outcome of a check. ``passed`` means full marks."""

    title: str
    worth: dict[str, int]
    levels: dict[str, Level] = field(default_factory=dict)
    written: bool = True
    ungraded: tuple[str, ...] = ()  # what could not be looked at on this machine
    elsewhere: Sequence[str] = ()  # names that the answer takes from the learner's own cells

    @property
    def passed(self) -> bool:
        return not self.ungraded and not self.failed

    @property
    def failed(self) -> bool:
        """Whether something is wrong with the answer. (It may also not have passed because this
        machine cannot play everything.)"""
        return not self.written or not all(r.passed for r in self.levels.values())

    @property
    def points(self) -> int:
        return sum(self.worth[level] for level in self.levels if self.pays(level))

    def pays(self, level: str) -> bool:
        """Whether the level and core have passed: that a wrong answer sends little is no merit."""
        return all(name in self.levels and self.levels[name].passed for name in ("core", level))

    @property
    def first_failing(self) -> Level | None:
        return next((level for level in self.levels.values() if level.failed), None)

    @property
    def diagnosis(self) -> str | None:
        """The id of what is wrong, as ``04.divides``; None if nothing is."""
        level = self.first_failing
        return level.said.id if level else None if self.written else "not-written"

    def __str__(self) -> str:
        if not self.written:
            return f"{self.title}: not written yet"
        lines = [f"{self.title}: {'passed' if self.passed else f'{self.points} of 100 points'}"]
        for name, worth in self.worth.items():
            paid = worth if self.pays(name) else 0
            lines.append(f"  {name:<7}{paid:>3}   {self._state(name)}")
        lines += [f"  not graded on this machine: {what}" for what in self.ungraded]
        if self.elsewhere:
            come, them = ("comes", "it") if len(self.elsewhere) == 1 else ("come", "them")
            lines.append(
                f"  {', '.join(self.elsewhere)} {come} from another cell of yours: grading runs "
                f"the answer's cell alone. Put {them} into that cell."
            )
        if level := self.first_failing:
            lines += ["", *_tell_case(level), "", f"{level.said.id}: {level.said.hint}"]
        return "\n".join(part for line in lines for part in _fold(line))

    __repr__ = __str__

    def _state(self, name: str) -> str:
        """What stands in the row of a level."""
        level = self.levels.get(name)
        if level is None:
            return "not graded"
        if level.passed:
            return f"passed   {_count_played(level)}" if self.pays(name) else WITHOUT_CORE
        if level.failed:
            id = level.said.id
            # what else goes wrong is seldom what a feature of the cases would say
            second = level is not self.first_failing
            vague = id.endswith("values-differ") or (second and ".only-" in id)
            return "failed" if vague else f"failed   {id}"
        if name == "budget":
            return "counts once core passes"
        return "not played: a case before it did not end"

    def as_json(self) -> dict[str, Any]:
        """What ``python -m course_lib check --json`` prints."""
        out: dict[str, Any] = {
            "exercise": self.title,
            "passed": self.passed,
            "points": self.points,
            "levels": {
                name: "passed" if level.passed else case_of(level)
                for name, level in self.levels.items()
            },
        }
        if not self.written:
            out |= {"diagnosis": "not-written", "case": None, "hint": NOT_WRITTEN_HINT}
        elif level := self.first_failing:
            said = level.said
            out |= {"diagnosis": said.id, "case": case_of(level), "hint": said.hint}
        return out | ({"ungraded": list(self.ungraded)} if self.ungraded else {})


def case_of(level: Level) -> Any:
    """A level's failing case as plain data: what a verdict's text is made of."""
    if level.play is None:
        return "not reached"
    case = level.play.case
    values = [f for f in level.findings if f.kind in VALUES]
    return {
        "text": level.case,
        "where": level.play.where,
        "ranks": case.world,
        "length": case.length,
        "dtype": case.dtype,
        "layout": case.layout,
        "options": {name: show(value) for name, value in case.options.items()},
        "values": [row for f in values for row in _list_values(level.play, f)][:MOST],
        "others": list(_list_others(level, values)),
        "findings": _list_findings(level.play, [f for f in level.findings if f not in values]),
    }


def _list_values(play: Play, f: Finding) -> Iterator[dict[str, str]]:
    """What a rank was given, what it has, and what it should have; of a model or a dict, each
    entry that differs."""
    assert f.rank is not None
    of = [f"rank {f.rank}"] if play.case.world > 1 else []
    of += [f"call {f.call + 1}"] if play.case.calls > 1 else []
    given = ", ".join(map(show, play.inputs[f.call][f.rank]))
    parts = [(given, f.got, f.want)]
    if isinstance(f.got, dict) and isinstance(f.want, dict):
        wrong = [k for k in f.want if not same(f.got.get(k), f.want[k], ROUNDING)]
        parts = [
            (f"{k} {show(f.old[k])}", f.got.get(k), f.want[k])
            if f.old
            else (given, {k: f.got.get(k)}, {k: f.want[k]})
            for k in wrong or list(f.want)[:1]
        ]
    for before, got, want in parts:
        one, other = show_apart(got, want)
        yield {
            "of": ", ".join(of),
            "has": f.text,
            "given": before,
            "got": one,
            "expected": other,
            "note": _say_note(f.kind, got, want),
        }


def _list_others(level: Level, values: list[Finding]) -> Iterator[dict[str, str]]:
    """What the other ranks were given, where the result depends on it."""
    assert level.play is not None
    shown, world = {f.rank for f in values}, level.play.case.world
    for rank in range(world if values and level.asks and world <= MOST else 0):
        if rank not in shown:
            given = level.play.inputs[values[0].call][rank]
            yield {"of": f"rank {rank}", "given": ", ".join(map(show, given))}


def _say_note(kind: str, got: Any, want: Any) -> str:
    """What is to be seen at a glance: a wrong type, dtype or shape, or the elements that differ."""
    if kind == "argument changed":
        return "changed, and should not be"
    if kind == "type" and (one := _name_kind(got)) != (other := _name_kind(want)):
        return f"and it returns {one}, not {other}"
    for (_, one), (_, other) in zip(leaves(got), leaves(want), strict=False):
        if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
            return ""
        if one.dtype != other.dtype:
            return f"{one.dtype}, not {other.dtype}".replace("torch.", "")
        if one.shape != other.shape:
            return f"shape {tuple(one.shape)}, not {tuple(other.shape)}"
    at = find_places(got, want)
    if at and len(at) == got.numel() > 1:
        return "all differ"
    return f"differs at {', '.join(map(str, at[:6]))}" + " …" * (len(at) > 6) if at else ""


def _name_kind(value: Any) -> str:
    """The type of a value, with its article."""
    name = type(value).__name__
    return "None" if value is None else f"an {name}" if name[0] in "aeiou" else f"a {name}"


def _list_findings(play: Play, findings: list[Finding]) -> list[str]:
    """What else is wrong: each text once, with the ranks that it is about."""
    whose: dict[str, list[str]] = {}
    for f in findings:
        call = f" in call {f.call + 1}" if play.case.calls > 1 else ""
        is_named = f.rank is None or f"rank {f.rank}" in f.text
        whose.setdefault(f.text, []).extend([] if is_named else [f"{f.rank}{call}"])
    texts = [
        f"rank{'s' * (len(ranks) > 1)} {', '.join(ranks)}: {text}" if ranks else text
        for text, ranks in whose.items()
    ]
    more = [f"and {len(texts) - MOST} findings more"] if len(texts) > MOST else []
    return texts[:MOST] + more


# ---- as text -------------------------------------------------------------------------------------


def _count_played(level: Level) -> str:
    """How many cases were played, on how many ranks."""
    many, worlds = len(level.plays), sorted({p.case.world for p in level.plays})
    said = [f"{many} case{'s' * (many > 1)}"]
    if worlds != [1]:  # a formula has no ranks
        said.append(" to ".join(map(str, dict.fromkeys((worlds[0], worlds[-1])))) + " ranks")
    if any(p.where != "simulated" for p in level.plays):
        said.append("one of them on real ranks")
    return ", ".join(said)


def _tell_case(level: Level) -> Iterator[str]:
    """The lines that show the failing case of a level."""
    case = case_of(level)
    where = "" if case["where"] == "simulated" else f", {case['where']}"
    which = "the smallest case" if level.play is level.failed[0] else "a case"
    yield f"{level.name}, {which} that shows it: {case['text']}{where}"
    values, others = case["values"], case["others"]
    wide = max((len(row["of"]) for row in values), default=0)

    def line(of: str, verb: str, cell: str, more: str = "") -> str:
        return f"  {of:<{wide}}  {verb:<13}  {shorten(cell, WIDE - wide - 19 - len(more))}{more}"

    above = ""
    for row in values:
        has = row["has"] == "has"
        yield line(row["of"] if row["of"] != above else "", "given", row["given"])
        yield line("", row["has"], row["got"])
        note = f"   {row['note']}".rstrip()
        yield line("", "should have" if has else "should return", row["expected"], note)
        above = row["of"]
    yield from (line(row["of"], "given", row["given"], "   and is right") for row in others)
    yield from (f"  {line}" for text in case["findings"] for line in text.splitlines()[:40])


def _fold(line: str) -> list[str]:
    """The line in parts that JupyterLab need not break, indented as the line is."""
    if len(line) <= WIDE + 2:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line, WIDE, subsequent_indent=indent + "  ", break_long_words=False, break_on_hyphens=False
    )
