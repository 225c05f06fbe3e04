"""Right answers are never refused on a busy machine; changed in one place, nearly all of them are.

COUNT=5 make soak SOAK_ARGS="-k 'busy and ring'"   fewer repeats, of some exercises
COUNT=3 make soak SOAK_ARGS="-k mutants"           so many mutants of each right answer
"""

from __future__ import annotations

import ast
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
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mod}
COMPARISONS = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.Gt: ast.GtE}
PAIRS = (("right", "left"), ("inbox", "outbox"), ("into", "out"), ("send", "recv"))
PAIRS += (("isend", "irecv"),)
NAMES = dict(PAIRS) | {second: first for first, second in PAIRS}


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What this node may become: (in words, the new node)."""
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield "operator", ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    if isinstance(node, ast.AugAssign):
        yield "assigned, not added", ast.Assign([node.target], node.value)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        ops = [COMPARISONS[type(node.ops[0])](), *node.ops[1:]]
        yield "comparison", ast.Compare(node.left, ops, node.comparators)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        for other in (node.value + 1, node.value - 1):
            yield f"{node.value} becomes {other}", ast.Constant(other)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in NAMES:
        yield f"{node.id} becomes {NAMES[node.id]}", ast.Name(NAMES[node.id], ast.Load())
    if isinstance(node, ast.Attribute) and node.attr in NAMES:
        new_name = NAMES[node.attr]
        yield f".{node.attr} becomes .{new_name}", ast.Attribute(node.value, new_name, node.ctx)
    if isinstance(node, ast.Call) and ast.unparse(node).endswith((".clone()", ".contiguous()")):
        yield "copy dropped", node.func.value
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "statement dropped: " + ast.unparse(node)[:40], ast.Pass()


class Put(ast.NodeTransformer):
    """Puts a node in another one's place."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Every mutant: (line and change, source)."""
    for place, node in enumerate(ast.walk(ast.parse(source))):
        for words, new in changes(node):
            tree = ast.parse(source)
            changed = Put([*ast.walk(tree)][place], new).visit(tree)
            line = getattr(node, "lineno", 0)
            yield f"line {line}: {words}", ast.unparse(ast.fix_missing_locations(changed))


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
