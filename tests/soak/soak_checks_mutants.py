"""Mutants of right answers: of those that behave differently, at least 95% are to be rejected.

    python tests/soak/soak_checks_mutants.py [--out FILE] [--only EXERCISE] [--seconds N]

Every operator, number, rank, range, wait and buffer of each right answer is changed, one at a time.
A mutant that is accepted either behaves as before or shows a hole in the check: each survivor is
listed with its change.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import zoo

from course_lib.checks.checking import verdict_on
from course_lib.checks.exercise import exercises, find
from course_lib.checks.in_rank import Answer

LEAST = 0.95
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mod,
             ast.Mod: ast.FloorDiv, ast.Div: ast.Mult}  # fmt: skip
COMPARISONS = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
               ast.Gt: ast.GtE, ast.GtE: ast.Gt}  # fmt: skip
NAMES = {"right": "left", "left": "right", "inbox": "outbox", "outbox": "inbox", "into": "out",
         "out": "into", "rank": "world", "send": "recv", "recv": "send", "isend": "irecv",
         "irecv": "isend"}  # fmt: skip


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
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in (
        "clone", "contiguous") and not node.args:  # fmt: skip
        yield f"{node.func.attr}() dropped", node.func.value
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "statement dropped: " + ast.unparse(node)[:40], ast.Pass()


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Every mutant: (line and change, source)."""
    tree = ast.parse(source)
    places = [(parent, name, index, child) for parent in ast.walk(tree)
              for name, value in ast.iter_fields(parent)
              for index, child in enumerate(value if isinstance(value, list) else [value])
              if isinstance(child, ast.AST)]  # fmt: skip
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


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path)
    options.add_argument("--only", default="")
    options.add_argument("--seconds", type=float, default=3600)
    asked = options.parse_args()
    end, died, survived = time.monotonic() + asked.seconds, 0, []
    known = [(name, way) for name in sorted(exercises()) for way in zoo.right(name)]
    for name, way in known:
        if asked.only not in f"{name}/{way}":
            continue
        for words, source in mutants(zoo.right(name)[way]):
            if time.monotonic() > end:
                break
            answer = Answer(name, source=source, file=f"{name}.py")
            if verdict_on(find(name), answer, shrink=False).passed:
                survived.append(f"{name}/{way} {words}")
                print("survived:", survived[-1], flush=True)
            else:
                died += 1
    share = died / max(1, died + len(survived))
    report = {"date": date.today().isoformat(), "died": died, "survived": survived,
              "share_killed": round(share, 4)}  # fmt: skip
    print(json.dumps(report, indent=2))
    if asked.out:
        asked.out.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if share >= LEAST else 1


if __name__ == "__main__":
    raise SystemExit(main())
