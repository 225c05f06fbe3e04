"""What has to hold between the cells of a lesson. A rule that does not raises Broken."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from course_lib.notebooks.lesson import BEGIN, ROLES, STUB, Cell

Cells = tuple[Cell, ...]
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_STUB = ast.dump(ast.parse(STUB).body[0])


class Broken(Exception):
    """A rule of the source format does not hold: ``sentence``, at ``line`` of the source."""

    def __init__(self, line: int, sentence: str):
        super().__init__(line, sentence)
        self.line, self.sentence = line, sentence


def ids_are_given_and_unique(cells: Cells) -> None:
    seen: dict[str, Cell] = {}
    for cell in cells:
        if not cell.id:
            raise Broken(cell.line, "a cell without an id: python -m course_lib build gives it one")
        if not _ID.fullmatch(cell.id):
            raise Broken(cell.line, f"id {cell.id!r}: 1 to 64 letters, digits, - and _")
        if other := seen.get(cell.id):
            if cell.exercise and other.exercise:
                way = f"an exercise has one {cell.role} cell"
            else:
                way = "take it out of the newer cell, and build gives that one another"
            raise Broken(
                cell.line, f"id {cell.id!r} is that of the cell at line {other.line}: {way}"
            )
        seen[cell.id] = cell


def exercises_are_blocks(cells: Cells) -> None:
    """Answer, perhaps try, then check, and no other code between them."""
    code = [cell for cell in cells if cell.kind == "code"]
    for exercise in dict.fromkeys(cell.exercise for cell in code if cell.exercise):
        places = [place for place, cell in enumerate(code) if cell.exercise == exercise]
        block = [code[place] for place in places]
        roles = [cell.role for cell in block]
        line, where = block[0].line, f"exercise {exercise}: "
        for role in ("answer", "check"):
            if role not in roles:
                raise Broken(line, where + f'no cell with role="{role}"')
        if roles != sorted(roles, key=ROLES.index):
            raise Broken(line, where + "its cells come in the order answer, try, check")
        if places[-1] - places[0] != len(places) - 1:
            raise Broken(line, where + "a code cell that is not its own stands between its cells")
        if not re.search(rf"\bcheck\(\s*{exercise}\b", block[-1].text):
            raise Broken(block[-1].line, where + f"its check cell has no check({exercise})")


def answers_define_their_exercise(cells: Cells) -> None:
    for cell in cells:
        if cell.role != "answer":
            continue
        where = f"exercise {cell.exercise}: "
        if cell.points < 1 or not 1 <= cell.difficulty <= 3:
            raise Broken(cell.line, where + "points are 1 or more, difficulty is 1, 2 or 3")
        if BEGIN not in cell.text:
            raise Broken(cell.line, where + "no BEGIN SOLUTION in its answer cell")
        for text in (cell.solved, cell.stub):
            try:
                tree = ast.parse(text)
            except SyntaxError as error:
                raise Broken(cell.line, where + f"its answer does not parse: {error}") from None
            names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
            if cell.exercise not in names:
                raise Broken(cell.line, where + "no function or class of that name in its answer")
        if not all(sheltered for sheltered in _stubs(tree, sheltered=False)):
            raise Broken(cell.line, where + "a solution has to lie inside a function")


def _stubs(node: ast.AST, sheltered: bool) -> Iterator[bool]:
    """For each stub below ``node``: does it wait in a function, or would it stop its own cell?"""
    if isinstance(node, ast.Raise) and ast.dump(node) == _STUB:
        yield sheltered
    sheltered = sheltered or isinstance(node, ast.FunctionDef)
    for child in ast.iter_child_nodes(node):
        yield from _stubs(child, sheltered)


def story_works_without_answers(cells: Cells) -> None:
    """No cell outside of the blocks uses an exercise: the story is for those who skip it, too."""
    exercises = {cell.exercise for cell in cells if cell.exercise}
    for cell in cells:
        if cell.kind == "code" and not cell.exercise:
            for name in sorted(exercises & _names(cell.text)):
                raise Broken(cell.line, f"exercise {name}: used or defined outside of its cells")


def _names(text: str) -> set[str]:
    """The names that a cell uses or defines; every word of one with magics."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:
        return set(re.findall(r"\w+", text))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    return used | {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}


RULES = (
    ids_are_given_and_unique,
    exercises_are_blocks,
    answers_define_their_exercise,
    story_works_without_answers,
)
