"""What an answer is run with: of the lesson's given cells and of earlier answers, what it needs.

A learner's notebook runs whole jobs before it comes to an exercise. An answer needs none of them,
only the names that it uses: imports, functions, classes, constants. So cells are taken apart into
statements, and those are taken that bind a name which is needed, beginning with the exercise's own:

    import torch.distributed as dist        ◄── dist
    def chunk(t, n): return t.tensor_split(n)    ◄── chunk
    runs = {n: run(train, world_size=n) …}       nobody asks for it: not run
    def ring_all_reduce(tensor): … chunk(…) … dist.isend(…)

Only the source is read here; it is run elsewhere.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

PROVIDED = {"torch", "dist", "Tensor", "Callable", "__name__", *dir(builtins)}


@dataclass(frozen=True)
class CellText:
    """One cell: a name to show it by, its source, and whether it is given or somebody's answer."""

    file: str
    source: str
    exercise: str = ""  # empty for a given cell


@dataclass(frozen=True)
class Namespace:
    """The cells to run, and what is known about them."""

    cells: list[dict[str, Any]]  # {"file", "source", "take": numbers of statements}
    uses: frozenset[str]  # earlier exercises of which the answer needs something
    missing: tuple[str, ...]  # names that nothing binds


def namespace(exercise: str, answer: CellText, before: Iterable[CellText]) -> Namespace:
    """What ``answer`` needs of itself and of the cells ``before`` it, in their order."""
    cells = [*before, answer]
    trees = [_parsed(cell.source) for cell in cells]
    bound = [_by_name(tree) for tree in trees]
    take: list[set[int]] = [set() for _ in cells]
    needed, done = [exercise], set()
    uses, missing = set(), []
    while needed:
        name = needed.pop()
        if name in done:
            continue
        done.add(name)
        # the last cell that binds it has the word
        at = next((n for n in reversed(range(len(cells))) if name in bound[n]), None)
        if at is None:
            missing += [name] if name not in PROVIDED else []
            continue
        for number in bound[at][name]:
            if number not in take[at]:
                take[at].add(number)
                needed += sorted(reads(trees[at].body[number]))
        if cells[at].exercise not in ("", exercise):
            uses.add(cells[at].exercise)
    rows = [{"file": cell.file, "source": cell.source, "take": sorted(numbers)}
            for cell, numbers in zip(cells, take, strict=True) if numbers]  # fmt: skip
    return Namespace(rows, frozenset(uses), tuple(sorted(missing)))


def _by_name(tree: ast.Module) -> dict[str, list[int]]:
    """For each name the numbers of the statements that bind it."""
    found: dict[str, list[int]] = {}
    for number, statement in enumerate(tree.body):
        for name in binds(statement):
            found.setdefault(name, []).append(number)
    return found


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])  # a given cell with a magic has nothing for an answer


def binds(statement: ast.stmt) -> set[str]:
    """The names that a statement of a cell binds, or whose object it changes."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Expr):
        return set(_changed(statement.value))
    return set(_bound(statement))


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield (alias.asname or alias.name).split(".")[0]
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
        yield from _base(node)
    for child in ast.iter_child_nodes(node):
        yield from _bound(child)


def _base(node: ast.AST) -> Iterator[str]:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def _changed(value: ast.expr) -> Iterator[str]:
    """``table.append(x)`` changes table."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        name = next(_base(value.func), "")
        if name not in ("torch", "dist", ""):
            yield name


def reads(statement: ast.stmt) -> set[str]:
    """The names outside of itself that a statement, or a function in it, looks up."""
    table = symtable.symtable(ast.unparse(statement), "<cell>", "exec")
    return set(_looked_up(table))


def _looked_up(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        outside = symbol.is_global() or table.get_type() == "module"
        if symbol.is_referenced() and outside:
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _looked_up(inner)
