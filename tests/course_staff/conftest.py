"""A fork server for all tests of grading, and short exercises to judge."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zoo

from course_check.cases import Case
from course_check.exercise import Exercise
from course_check.namespace import CellText
from course_exercises.catalogue import find
from course_sim import scheduler
from course_staff.grading import carried_player, processes
from course_staff.grading.carried_player import Order, grade_answer
from course_staff.grading.processes import RankServer, Runner
from course_staff.grading.walls import UNDEFENDED, Limits

TESTS = Path(__file__).resolve().parents[1]
LIMITS = Limits(memory_mb=200, cpu_seconds=20, play_seconds=1, exercise_seconds=6)
MOST_RANKS = 5
PATIENT = replace(LIMITS, play_seconds=10, exercise_seconds=60)


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankServer]:
    with RankServer() as started:
        os.environ["COURSE_ATTACK_TOKEN"] = "secret"
        assert started.address
        del os.environ["COURSE_ATTACK_TOKEN"]
        yield started


@pytest.fixture(scope="session")
def standing(ranks: RankServer) -> set[str]:
    """The walls that this system allows."""
    with Runner(ranks.address, LIMITS, {"name": "", "cells": []}) as runner:
        runner.slots(1)
        return runner.walls


@pytest.fixture
def needs(standing: set[str]) -> Callable[[str], None]:
    def need(wall: str) -> None:
        if wall not in {*standing, ""}:
            pytest.skip(f"no wall: an answer could {UNDEFENDED[wall]}")

    return need


@pytest.fixture
def judged(ranks: RankServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Judge a source with a few cases of each level, and few ranks: what is tested is the way
    there."""

    def few(name: str) -> Exercise:
        whole = find(name)

        def cases(level: str, rng: random.Random) -> list[Case]:
            small = [case for case in getattr(whole, level)(rng) if case.world <= MOST_RANKS]
            if level == "core":
                return small[:5]
            small.sort(key=lambda case: case.layout == "contiguous")
            return [*small[:2], *small[2:][-3:]]

        return replace(whole, core=partial(cases, "core"), sturdy=partial(cases, "sturdy"))

    monkeypatch.setattr(carried_player, "find", few)
    monkeypatch.setattr(processes, "HOME", 0.5)
    monkeypatch.setattr(scheduler, "GRACE", 0.5)

    def judge_it(
        exercise: str,
        source: str,
        own: list[CellText] | None = None,
        reference: list[CellText] | None = None,
        address: str = "",
        limits: Limits = LIMITS,
    ) -> dict[str, Any]:
        order = Order(exercise, source, own or [], reference or own or [])
        return grade_answer(order, address or ranks.address, limits)

    return judge_it


# A right my_share, for answers that try something else on the way.
HONEST = zoo.source("my_share", "by_divmod").replace("def my_share", "def honest")


def attack(exercise: str, name: str) -> str:
    return (TESTS / "attacks" / exercise / f"{name}.py").read_text()


def notebook(cells: list[dict[str, Any]], lesson: str = "00_hello_ranks") -> dict[str, Any]:
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "cells": cells,
        "metadata": {"course": {"lesson": lesson}},
    }


def code(source: str, id: str = "", **metadata: Any) -> dict[str, Any]:
    cell = {
        "cell_type": "code",
        "source": source,
        "metadata": metadata,
        "outputs": [],
        "execution_count": None,
    }
    return cell | ({"id": id} if id else {})


def answer_cell(source: str, exercise: str = "my_share") -> dict[str, Any]:
    return code(source, f"{exercise}-answer", exercise=exercise, role="answer")


def written(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path
