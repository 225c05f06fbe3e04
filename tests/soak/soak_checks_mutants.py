"""Mutants of right answers: of those that behave differently, at least 95% are to be rejected.

    python tests/soak/soak_checks_mutants.py [--out FILE] [--only EXERCISE] [--seconds N]

Every operator, number, rank, range, wait and buffer of each right answer is changed, one at a time.
A mutant that is accepted either behaves as before or shows a hole in the check: each survivor is
listed with its change, and those known to be equivalent are named in EQUIVALENT with the reason.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from course_lib.checks.checking import verdict_on
from course_lib.checks.exercise import exercises, find
from course_lib.checks.play import Answer

RIGHT = Path(__file__).resolve().parents[1] / "right_answers"
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
    for path in sorted(RIGHT.glob("*/*.py")):
        name = path.parent.name
        if name not in exercises() or asked.only not in f"{name}/{path.stem}":
            continue
        for words, source in mutants(path.read_text()):
            if time.monotonic() > end:
                break
            answer = Answer(name, source=source, file=path.name)
            if verdict_on(find(name), answer, shrink="none").passed:
                survived.append(f"{name}/{path.stem} {words}")
                print("survived:", survived[-1], flush=True)
            else:
                died += 1
    unexplained = [s for s in survived if not any(e in s for e in EQUIVALENT)]
    share = died / max(1, died + len(unexplained))
    report = {"date": date.today().isoformat(), "died": died, "equivalent":
              {s: why for s in survived for e, why in EQUIVALENT.items() if e in s},
              "survived": unexplained, "share_killed": round(share, 4)}  # fmt: skip
    print(json.dumps(report, indent=2))
    if asked.out:
        asked.out.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if share >= LEAST else 1


# Part of a survivor's line -> why the mutant does what the original did.
EQUIVALENT: dict[str, str] = {
    "accumulate_step/in_float64 line 11: 0 becomes": "all of a model lies on one device",
    "accumulate_step/one_backward_for_all line 13: clone() dropped": "nobody reads the loss again",
    "accumulate_step/reduced_by_hand line 16: 0 becomes": "every gradient has the same dtype",
    "accumulate_step/reduced_by_hand line 22: operator": "1e-6 more or less is within rounding",
    "broadcast_parameters/as_bytes line 13: contiguous() dropped": "reshape copies",
    "broadcast_parameters/as_objects line 13: 0 becomes -1": "the list has one entry",
    "bus_bandwidth/least_bytes line 5: 2 becomes 1": "the formula says 0 for one rank",
    "exchange/lower_sends_first line 12: comparison": "nobody is its own partner there",
    "half_bandwidth_bytes/by_search line": "the search ends at the same number",
    "in_order/along_the_row line 11: 1 becomes": "the token's length says nothing",
    "in_order/counts_those_before line 11: 1 becomes": "the token's length says nothing",
    "in_order/empty_tokens line": "an empty tensor may be replaced by one of length 1",
    "in_order/rank_0_calls_out line 11": "the token's length says nothing",
    "in_order/round_and_home line 11: 1 becomes": "the token's length says nothing",
    "in_order/round_and_home line 16": "what the token says is never read",
    "my_all_gather/root_and_back line 11: contiguous() dropped": "stack makes it contiguous",
    "my_all_gather/root_and_back line 20: clone() dropped": "no two rows share an element",
    "my_broadcast/binomial_tree line 11: clone() dropped": "what is written back is the same",
    "my_broadcast/binomial_tree line 13: comparison": "a round in which nobody has a partner",
    "my_broadcast/through_rank_0 line 10: clone() dropped": "what is written back is the same",
    "my_gather/by_object line 11: contiguous() dropped": "a pickle keeps strides",
    "my_gather/by_object line 18: 0 becomes -1": "the list has one entry",
    "my_reduce/tree line 12: clone() dropped": "combine makes a new tensor",
    "my_reduce/tree line 14: comparison": "a round in which nobody has a partner",
    "my_share/by_rounding line 8: 0 becomes -1": "every rank has returned before",
    "pass_right/even_ranks_send_first line 14": "any who send first will do, but for all and none",
    "pass_right/one_breaks_the_ring line 15: outbox becomes inbox": "both hold the same numbers",
    "ring_all_reduce/flat_copy line 11: clone() dropped": "a view is written back onto itself",
    "ring_all_reduce/owner_is_own_rank line 12: 1 becomes 2": "an end more, of no chunk",
    "ring_all_reduce/owner_is_own_rank line 20: clone() dropped": "that chunk stays as it is",
    "ring_all_reduce/to_the_left line 15": "any who send first will do, but for all and none",
    "same_everywhere/along_a_chain line 11: contiguous() dropped": "reshape copies",
    "same_everywhere/along_a_chain line 14: 1 becomes 2": "a byte more that says nothing",
    "same_everywhere/by_digest line 13: contiguous() dropped": "reshape copies",
    "same_everywhere/compared_with_rank_0 line 10: contiguous() dropped": "reshape copies",
    "same_everywhere/compared_with_rank_0 line 11: 1 becomes": "bytes that are the same everywhere",
    "same_everywhere/gathered_bytes line 11: contiguous() dropped": "reshape copies",
    "same_everywhere/smallest_is_largest line 12: contiguous() dropped": "reshape copies",
    "train_step/averaged_then_scaled line 9: 2 becomes 3": "a zero more to add up",
    "train_step/in_hooks line 24: clone() dropped": "nobody reads the loss again",
}


if __name__ == "__main__":
    raise SystemExit(main())
