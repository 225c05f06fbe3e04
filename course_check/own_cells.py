"""What an answer takes from cells that are no part of the lesson.

Grading runs the answer's cell with the lesson's own ones, so a helper in another cell of the
learner's is there when ``check`` plays the answer, and is missing when it is graded. The id of a
cell says whose it is, if the front end passes it on: a lesson's cells are called ``00-3fa9c1`` or
``my_share-answer``. A cell to try an answer counts as the learner's own: what an answer takes from
there, the learner has written. If nothing is known of a cell, nothing is said.
"""

from __future__ import annotations

import re
import symtable
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

_LESSONS = re.compile(r"\d\d-|\w+-answer$")
_cells: dict[str, bool] = {}  # the text of each cell that was run: is it the learner's own?


def note_cells() -> None:
    """Note from now on which cells this notebook runs. Outside a notebook this does nothing."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        shell.events.register("pre_run_cell", _note)


def _note(cell: Any) -> None:
    """Note whether a cell is the learner's own, before it runs."""
    id = getattr(cell, "cell_id", None)
    known = isinstance(id, str) and not id.startswith("vscode-")
    _cells[cell.raw_cell] = known and not _LESSONS.match(str(id))


def list_taken(answer: Callable) -> list[str]:
    """The names that the answer takes from the learner's own cells, sorted."""
    bound = [(_list_bound(text), own) for text, own in _cells.items()]
    return sorted(
        name
        for name in _list_needed(answer)
        if (whose := [own for names, own in bound if name in names]) and all(whose)
    )


def _list_needed(answer: Callable) -> set[str]:
    """The global names that it uses, and those that the notebook's functions among them use."""
    needed: set[str] = set()
    todo: list[Any] = [answer]
    while todo:
        one = todo.pop()
        if isinstance(one, type):
            todo += [method for method in vars(one).values() if isinstance(method, FunctionType)]
        elif isinstance(one, FunctionType):
            here = {n for n in _list_names(one.__code__) if n in one.__globals__} - needed
            needed |= here
            values = [one.__globals__[name] for name in here]
            todo += [v for v in values if getattr(v, "__module__", None) == "__main__"]
    return needed - {getattr(answer, "__name__", "")}


def _list_names(code: CodeType) -> Iterator[str]:
    """The names that a function and those inside it use."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _list_names(inner)


def _list_bound(text: str) -> set[str]:
    """What a cell defines, imports or assigns."""
    try:
        symbols = symtable.symtable(text, "<cell>", "exec").get_symbols()
    except (SyntaxError, ValueError):  # it has a magic, say
        return set()
    return {s.get_name() for s in symbols if s.is_assigned() or s.is_imported() or s.is_namespace()}
