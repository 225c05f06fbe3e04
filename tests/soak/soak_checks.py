"""Right answers are never refused on a busy machine; changed in one place, nearly all of them are.

COUNT=5 make soak SOAK_ARGS="-k 'busy and ring'"   fewer repeats, of some exercises
COUNT=3 make soak SOAK_ARGS="-k mutants"           so many mutants of each right answer
"""

from __future__ import annotations

import ast
import copy
import random
import time
from collections.abc import Iterator

import pytest
import zoo
from soak_ranks_common import busy, count, median, report

from course_check.checking import verdict_on
from course_check.harness.answer import Answer
from course_check.verdict import Verdict
from course_exercises.catalogue import exercises, find

LEAST = 0.95  # of the mutants are rejected; one that is not behaves as before, or shows a hole
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.Div: ast.Mult,
}
COMPARISONS = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
NAMES = {
    "right": "left",
    "left": "right",
    "inbox": "outbox",
    "outbox": "inbox",
    "into": "out",
    "out": "into",
    "rank": "world",
    "send": "recv",
    "recv": "send",
    "isend": "irecv",
    "irecv": "isend",
}


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    """What this node may become: (in words, the new node); None removes a statement."""
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        new = copy.deepcopy(node)
        new.op = OPERATORS[type(node.op)]()
        yield "operator", new
    if isinstance(node, ast.AugAssign):
        yield "assigned, not added", ast.Assign([copy.deepcopy(node.target)], node.value)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        new_compare = copy.deepcopy(node)
        new_compare.ops[0] = COMPARISONS[type(node.ops[0])]()
        yield "comparison", new_compare
    if isinstance(node, ast.Constant) and type(node.value) is int:
        for other in (node.value + 1, node.value - 1):
            yield f"{node.value} becomes {other}", ast.Constant(other)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in NAMES:
        yield f"{node.id} becomes {NAMES[node.id]}", ast.Name(NAMES[node.id], ast.Load())
    if isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield (
            f".{node.attr} becomes .{NAMES[node.attr]}",
            ast.Attribute(node.value, NAMES[node.attr], node.ctx),
        )
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("clone", "contiguous")
        and not node.args
    ):
        yield f"{node.func.attr}() dropped", node.func.value
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "statement dropped: " + ast.unparse(node)[:40], ast.Pass()


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Every mutant: (line and change, source)."""
    tree = ast.parse(source)
    places = [
        (parent, name, index, child)
        for parent in ast.walk(tree)
        for name, value in ast.iter_fields(parent)
        for index, child in enumerate(value if isinstance(value, list) else [value])
        if isinstance(child, ast.AST)
    ]
    for parent, name, index, child in places:
        for words, new in changes(child):
            field = getattr(parent, name)
            if isinstance(field, list):
                field[index] = new
            else:
                setattr(parent, name, new)
            ast.fix_missing_locations(tree)
            yield f"line {getattr(child, 'lineno', 0)}: {words}", ast.unparse(tree)
            if isinstance(field, list):
                field[index] = child
            else:
                setattr(parent, name, child)


def verdict_of(exercise: str, source: str) -> Verdict:
    answer = Answer(exercise, source=source, file=f"{exercise}.py")
    return verdict_on(find(exercise), answer)


@pytest.mark.parametrize("exercise", sorted(exercises()))
def test_no_right_answer_is_refused_while_every_core_is_busy(exercise: str) -> None:
    """Each repeat under a comment that changes the lengths and schedules that are drawn."""
    refused, seconds = [], []
    with busy():
        for number in range(count(50)):
            way, text = random.Random(number).choice([*zoo.right(exercise).items()])
            start = time.monotonic()
            verdict = verdict_of(exercise, f"{text}\n# repeat {number}\n")
            seconds.append(time.monotonic() - start)
            if not verdict.passed:
                refused.append(f"repeat {number}, {way}:\n{verdict}")
    report(
        f"checks_repeats_{exercise}",
        repeats=len(seconds),
        refused=refused,
        median=median(seconds),
        most=max(seconds),
    )
    assert not refused


def test_mutants_of_right_answers_are_rejected() -> None:
    """Every operator, number, rank, range, wait and buffer is changed, one at a time."""
    died, survived = 0, []
    for exercise, way in ((e, w) for e in sorted(exercises()) for w in zoo.right(e)):
        every = [*mutants(zoo.right(exercise)[way])]
        some = random.Random(way).sample(every, min(len(every), count(10_000)))
        for words, source in some:
            if verdict_of(exercise, source).passed:
                survived.append(f"{exercise}/{way} {words}")
            else:
                died += 1
    report("checks_mutants", died=died, survived=survived)
    assert died >= LEAST * (died + len(survived))
