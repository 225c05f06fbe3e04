"""The judge: plays an answer's cases on a network of its own, compares, and writes a verdict down.

    answers (text) ── namespace ──► Runner: processes behind walls
                                        ▲ inputs        │ what they send, and have at the end
    exercise ─── cases, some hidden ────┘               ▼
         └────── expected values ──────────────────► verdict_on: what ``check`` calls, too

It runs no line of an answer. Expected values are made here, after the inputs have gone out, and
never leave. What differs from ``check``: ranks are processes, cases are drawn by the secret of this
grading, and each world is also played with numbers that nobody can have seen before.
"""

from __future__ import annotations

import random
import secrets
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from course_check.cases import Case
from course_check.checking import verdict_on
from course_check.exercise import Exercise, Play
from course_check.harness.answer import Answer
from course_check.namespace import CellText, Namespace, namespace
from course_check.play import Broken, Player, make_play, note_result
from course_check.verdict import Verdict
from course_exercises.catalogue import find
from course_lib import CourseError, Hang, RankDied, Run, simulate
from course_lib.errors import NotStarted
from course_lib.user_code import show_lines
from course_staff.grading.evidence import drawn, questions
from course_staff.grading.load_factor import load_factor
from course_staff.grading.processes import Runner
from course_staff.grading.proxies import Stage, be_rank
from course_staff.grading.walls import UNDEFENDED, Limits
from course_staff.grading.wire import Ended

LARGEST_HIDDEN = 64  # elements of a hidden case
MOST_TRIED = 5  # things that an answer has reached for
HIDDEN_FROM = 1 << 60  # seeds of hidden cases, and of no other


@dataclass
class CarriedPlayer(Player):
    """Plays cases in processes behind walls; ``check``'s own player does so in a simulator."""

    runner: Runner
    limits: Limits
    files: set[str]

    def __post_init__(self) -> None:
        # Seconds are those of an idle machine. They are stretched by what others compute now: what
        # the answer sets going stretches nothing.
        self.stretch = load_factor()
        self.end = time.monotonic() + self.stretch * self.limits.exercise_seconds

    def play_real(self, exercise: Exercise, answer: Answer, case: Case) -> Play | None:
        """None: the ranks are processes already, and no socket between them is allowed."""
        return None

    def play_all(self, exercise: Exercise, answer: Answer, cases: list[Case]) -> list[Play]:
        """Every case once, until one hangs or takes a rank along."""
        plays: list[Play] = []
        for number, case in enumerate(cases):
            play = make_play(exercise, case)
            plays.append(play)
            self._play(play, number % 5, exercise.ddp)
            if isinstance(play.error, RankDied | Hang | Broken):
                break
        return plays

    def _play(self, play: Play, schedule: int, ddp: bool) -> None:
        left = self.end - time.monotonic()
        seconds = self.stretch * self.limits.play_seconds
        if left <= 0:
            play.error = Hang("the time for this exercise is over")
            return
        outcome: Run | CourseError
        try:
            slots = self.runner.slots(play.case.world)
            Stage.current = Stage(slots, play, self.files, ddp)
            outcome = simulate(
                be_rank,
                world_size=play.case.world,
                seed=schedule,
                network=play.case.network,
                limit=min(seconds, left),
            )
        except Ended as error:
            outcome = NotStarted(f"no process for a rank: {error}")
        except CourseError as error:
            outcome = error
        finally:
            Stage.current = None
        gone = self.runner.end_lost()
        if gone and not isinstance(outcome, Hang | Broken):
            outcome = RankDied(f"a rank's process is gone: {gone[0]}", rank=0, exit_code=1)
        note_result(play, outcome)


# ---- cases that nobody has seen ------------------------------------------------------------------


def hidden_cases(cases: list[Case], rng: random.Random) -> list[Case]:
    """For each world among the cases one more, with numbers drawn today. It is called once, and no
    message is late: a budget that counts time allows for neither."""
    largest: dict[int, Case] = {}
    for case in cases:
        known = largest.get(case.world)
        if case.length <= LARGEST_HIDDEN and (known is None or case.length > known.length):
            largest[case.world] = case
    plain: Any = {"numbers": "random", "calls": 1, "later": (), "jitter": 0.0}
    seeds = (HIDDEN_FROM + rng.getrandbits(60) for _ in largest)
    return [
        replace(case, seed=seed, **plain)
        for case, seed in zip(largest.values(), seeds, strict=True)
    ]


def with_hidden_cases(exercise: Exercise) -> Exercise:
    """The exercise with hidden cases after its own, in each level that has any."""

    def more(level: str, rng: random.Random) -> list[Case]:
        known = getattr(exercise, level)(rng)
        return known + hidden_cases(known, rng)

    levels = [name for name in ("core", "sturdy") if name in exercise.points]
    new: Any = {name: partial(more, name) for name in levels if exercise.in_ranks}
    return replace(exercise, **new)


# ---- one exercise --------------------------------------------------------------------------------


@dataclass
class Order:
    """One exercise to be judged: all of it is text."""

    exercise: str
    answer: str
    given: list[CellText]  # the lesson's given cells and earlier answers, in their order
    reference: list[CellText]  # the same with the instructor's answers
    # Of this grading: what it draws together with the answer's text, nobody can know before.
    secret: str = field(default_factory=secrets.token_hex)


def grade_answer(
    order: Order, address: str, limits: Limits, pictures: bool = False
) -> dict[str, Any]:
    """The record of one exercise. An answer that fails is tried again with reference answers for
    those before it, where it needs any; the better verdict counts. Raises CannotCheck, OSError or
    MemoryError where this machine could not play it."""
    exercise = with_hidden_cases(find(order.exercise))
    text = Answer(order.exercise, source=order.answer, file=f"{order.exercise}.py")
    answer = CellText(text.file, text.source, text.name)

    def attempt(space: Namespace) -> tuple[Verdict, Runner]:
        """One verdict, and the processes that it came about with, which have ended."""
        for cell in space.cells:
            show_lines(cell["file"], cell["source"])
        setup = {"name": text.name, "cells": space.cells, "lives": exercise.lives is not None}
        with Runner(address, limits, setup) as runner:
            player = CarriedPlayer(runner, limits, {cell["file"] for cell in space.cells})
            secret = f"{order.secret} {text.source}"
            return verdict_on(exercise, text, player, secret=secret), runner

    start = time.monotonic()
    space = namespace(order.exercise, answer, order.given)
    verdict, runner = attempt(space)
    before = "own" if space.uses else ""
    other = namespace(order.exercise, answer, order.reference)
    if other.uses and not verdict.passed and verdict.written:
        second = attempt(other)
        if second[0].points > verdict.points:
            (verdict, runner), before = second, "reference"
    first = verdict.first_failing
    # Of a case with hidden numbers a learner sees nothing.
    shown = first.play if first and first.play and first.play.case.seed < HIDDEN_FROM else None
    words = str(verdict).replace(f"{text.file}, line ", "your cell, line ")  # no student has a file
    head, *blocks = words.split("\n\n")  # the levels; the case; the hint
    return {
        "written": verdict.written,
        "passed": verdict.passed,
        "points": verdict.points,
        "diagnosis": verdict.diagnosis,
        "levels": {name: _level(verdict, name, worth) for name, worth in exercise.points.items()},
        "told": [head, *(blocks if shown else blocks[-1:])],
        "pictures": drawn(shown) if shown and pictures else [],
        "reason": _reason(verdict, runner.ended, space),
        "earlier_answers": before,
        "undefended": {w: words for w, words in UNDEFENDED.items() if w not in runner.walls},
        "tried": sorted(runner.tried)[:MOST_TRIED],
        "seconds": round(time.monotonic() - start, 1),
        "questions": questions(exercise, verdict),
    }


def _level(verdict: Verdict, name: str, worth: int) -> dict[str, Any]:
    level = verdict.levels.get(name)
    state = "not graded"
    if level is not None:
        state = "failed" if level.failed else "not reached"
        if level.passed:
            state = "passed" if verdict.pays(name) else "without core"
    return {"points": worth if state == "passed" else 0, "state": state}


def _reason(verdict: Verdict, ended: list[str], space: Namespace) -> str:
    """Why there are no marks, where that is not the answer's being wrong."""
    if not verdict.written:
        return "not written yet"
    if verdict.passed:
        return ""
    if verdict.points == 0 and space.missing:
        names = ", ".join(space.missing[:5])
        return f"it uses {names}, which neither its own cell nor the lesson defines"
    return f"a rank's process was lost: {ended[0]}" if ended else ""
