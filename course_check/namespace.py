"""Find what an answer is run with: those statements of the cells before it that it needs.

A learner's notebook runs whole jobs before it comes to an exercise. An answer needs none of them,
only the names that it uses: imports, functions, classes, constants. So cells are taken apart into
statements, and those are taken that bind a name which is needed, beginning with the exercise's own:

    from course_lib import device, draw     ◄── device, and nothing draws
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
    bodies = [readable(cell.source) for cell in cells]
    bound = [[binds(statement) for statement in body] for body in bodies]
    # If several cells bind a name, the last one counts.
    last = {name: at for at, body in enumerate(bound) for names in body for name in names}
    take: list[set[int]] = [set() for _ in cells]
    needed = [exercise]
    done = set()
    uses = set()
    missing = []
    while needed:
        name = needed.pop()
        if name in done:
            continue
        done.add(name)
        at = last.get(name)
        if at is None:
            missing += [name] if name not in PROVIDED else []
            continue
        fresh = {n for n, names in enumerate(bound[at]) if name in names} - take[at]
        take[at] |= fresh
        for number in fresh:
            needed += sorted(reads(bodies[at][number]))
        if cells[at].exercise not in ("", exercise):
            uses.add(cells[at].exercise)
    taken = [(cell, sorted(numbers)) for cell, numbers in zip(cells, take, strict=True) if numbers]
    rows = [{"file": cell.file, "source": cell.source, "take": take} for cell, take in taken]
    return Namespace(rows, frozenset(uses), tuple(sorted(missing)))


def statements(source: str, file: str = "<cell>") -> list[ast.stmt]:
    """What a cell is taken apart into: its statements, and of an import one for each name."""
    out: list[ast.stmt] = []
    for statement in ast.parse(source, file).body:
        match statement:
            case ast.Import(names):
                parts: list[ast.stmt] = [ast.Import([name]) for name in names]
            case ast.ImportFrom(module, names, level):
                parts = [ast.ImportFrom(module, [name], level) for name in names]
            case _:
                parts = [statement]
        out += [ast.copy_location(part, statement) for part in parts]
    return out


def readable(source: str) -> list[ast.stmt]:
    """The statements of a cell; none if it is not Python, as a cell with a magic is not."""
    try:
        return statements(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def binds(statement: ast.stmt) -> set[str]:
    """The names that a statement of a cell binds, or whose object it changes."""
    symbols = _read_symbols(statement).get_symbols()
    bound = [s for s in symbols if s.is_assigned() or s.is_imported() or s.is_namespace()]
    parts = [n for n in ast.walk(statement) if isinstance(n, ast.Attribute | ast.Subscript)]
    changed: list[ast.expr] = [part for part in parts if isinstance(part.ctx, ast.Store)]
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        changed.append(call.func)  # table.append(x)
    names = {symbol.get_name() for symbol in bound}
    return names | {_find_base(node) for node in changed} - {"", "torch", "dist"}


def _find_base(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def reads(statement: ast.stmt) -> set[str]:
    """The names outside of itself that a statement, or a function in it, looks up."""
    return set(_list_lookups(_read_symbols(statement)))


def _read_symbols(statement: ast.stmt) -> symtable.SymbolTable:
    return symtable.symtable(ast.unparse(statement), "<cell>", "exec")


def _list_lookups(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        outside = symbol.is_global() or table.get_type() == "module"
        if symbol.is_referenced() and outside:
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _list_lookups(inner)
