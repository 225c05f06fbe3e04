"""How a lesson reads, counted: prose beside code, size of cells, captions, words we avoid, and
whether what the prose says is held by something: numbers by a cell, facts by a source.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from statistics import median

import pytest

from course_staff.authoring.lesson import Cell, Lesson
from course_staff.authoring.source import read_lesson

SOURCES = sorted((Path(__file__).parents[1] / "notebooks" / "src").glob("*.py"))
CELLS = range(25, 41)
WORDS = range(1800, 2601)  # a quarter of an hour of reading; the rest of the hour is for doing
WORDS_PER_CODE_CELL = range(60, 111)
MEDIAN_LINES = range(3, 7)
MOST_LINES = 25
MOST_COLUMNS = 100  # on a page 1280 pixels wide JupyterLab shows 107 beside its file browser
PICTURES = range(5, 11)
# Numbers in prose that no cell holds, because they come from one of the lesson's sources.
FROM_SOURCES = {
    "02_collectives": {"2.11"},  # a PyTorch without all_gather_single
    "04_ring_all_reduce": {"2.4"},  # NCCL's version with double binary trees
    "05_gradient_averaging": {"8,192"},  # Goyal and others 2017
    "06_ddp": {"2.15", "22.05"},  # PyTorch, for its restarts; Slurm, for what srun takes over
    "07_gpus": {"2.7", "2.15", "2.30"},  # where plain calls ran till then; PyTorch; NCCL
    "10_mini_ddp": {"2.15"},  # the PyTorch whose source it reads
    "11_debugging": {"2.15"},  # the PyTorch that was tried
    "13_sharding": {"2.15"},  # the same
    "16_experts": {"2.15"},  # the PyTorch whose operators it names
    # Llama 3's paper; the model's name; what a check allows
    "17_capstone": {"38%", "43%", "3.1", "5%"},
    "12_recovery": {"2.15"},  # the PyTorch whose restarts and reconfiguration it tells of
}
AVOIDED = re.compile(
    r"\b(simply|obviously|trivial(ly)?|of course|easy|easily|merely)\b", re.IGNORECASE
)
# Whoever reads the course reads nothing about how it was made.
FOREIGN = re.compile(r"\b(issue #?\d+|session|/work/|/home/|/tmp/|localhost)\b", re.IGNORECASE)

_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)\s]*(?:\([^)]*\)[^)]*)?\)")
_TABLE = re.compile(r"^\|.*$", re.MULTILINE)
_TAG = re.compile(r"</?[a-z]+[^>]*>")
_WORD = re.compile(r"[^\W_](?:[\w'’.:/-]*\w)?")
_QUOTED = re.compile(r"`[^`]*`")
_DETAILS = re.compile(r"<details>.*?</details>", re.DOTALL)
_NUMBER_OF_AN_EXERCISE = re.compile(r"\b(?:(?:0\d|1[0-5])\.\d|1[67]\.[1-3])\b")
# With a comma, a point or a percent sign: whoever writes one has counted or measured something.
_EXACT = re.compile(r"(?<![\w.,/:·-])(?:\d{1,3}(?:,\d{3})+|\d+\.\d+|\d+(?=%))%?(?![\d.]*\d)")
_YEAR = re.compile(r"(?<![\d.,])(?:19\d\d|20[0-3]\d)(?![\d.,]*\d)")


def prose(markdown: str) -> str:
    """The running text: no fenced code, tables, pictures, addresses or lists of sources."""
    text = markdown.split("## Sources")[0]
    text = _FENCE.sub("", text)
    text = _TABLE.sub("", text)
    text = _IMAGE.sub("", text)
    text = _LINK.sub(r"\1", text)
    return _TAG.sub("", text)


def words(markdown: str) -> int:
    return len(_WORD.findall(prose(markdown)))


def pictures(cell: Cell) -> list[ast.Call]:
    """The calls of ``draw.something(…)`` in a code cell."""
    calls = (node for node in ast.walk(ast.parse(cell.solved)) if isinstance(node, ast.Call))
    return [
        c
        for c in calls
        if isinstance(c.func, ast.Attribute)
        and isinstance(c.func.value, ast.Name)
        and c.func.value.id == "draw"
    ]


def caption(call: ast.Call) -> str:
    """A picture's caption as far as it stands in the cell; "" where there is none."""
    for keyword in call.keywords:
        if keyword.arg == "caption":
            strings = (n.value for n in ast.walk(keyword.value) if isinstance(n, ast.Constant))
            return "".join(str(s) for s in strings)
    return ""


def listings(lesson: Lesson) -> list[str]:
    """All code that the page shows: cells with their solutions, and fenced code in the prose."""
    cells = [cell.solved for cell in lesson.cells if cell.kind == "code"]
    markdown = [cell.text for cell in lesson.cells if cell.kind == "markdown"]
    return cells + [found[0] for text in markdown for found in _FENCE.finditer(text)]


def constants(lesson: Lesson) -> set[float]:
    """The numbers that stand in cells, exercises left out: what a cell is given or asserts."""
    cells = [cell.text for cell in lesson.cells if cell.kind == "code" and not cell.exercise]
    nodes = [node for text in cells for node in ast.walk(ast.parse(text))]
    values = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return {float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)}


def exact_numbers(markdown: str) -> list[str]:
    """Numbers with a comma, a point or a percent sign, as they stand in the running text."""
    text = _QUOTED.sub("", _DETAILS.sub("", prose(markdown)))
    return _EXACT.findall(_NUMBER_OF_AN_EXERCISE.sub("", text))


def is_held(number: str, held: set[float]) -> bool:
    """Whether it, or what it is short for, is among those: 97% for 0.97, 16.8 for 16,777,216."""
    value = float(number.strip("%").replace(",", ""))
    if value in held or (number.endswith("%") and value / 100 in held):
        return True
    digits = len(number.partition(".")[2])
    return bool(digits) and any(
        round(h / unit, digits) == value for h in held for unit in (1e3, 1e6, 1e9)
    )


def statement(lesson: Lesson, answer: Cell) -> str:
    """The prose that states an exercise: the nearest above it that gives its level."""
    above = lesson.cells[: lesson.cells.index(answer)]
    return next(c.text for c in reversed(above) if c.kind == "markdown" and "●" in c.text)


@pytest.fixture(params=SOURCES, ids=lambda path: path.stem)
def lesson(request: pytest.FixtureRequest) -> Lesson:
    return read_lesson(request.param)


def test_lesson_has_its_measure(lesson: Lesson) -> None:
    """Cells, words, pictures, and how long and wide code cells are: the ranges of a lesson."""
    code = [cell for cell in lesson.cells if cell.kind == "code"]
    shown = [cell.stub if cell.exercise else cell.text for cell in code]  # as learners see them
    running = sum(words(cell.text) for cell in lesson.cells if cell.kind == "markdown")
    assert len(lesson.cells) in CELLS
    assert running in WORDS
    assert WORDS_PER_CODE_CELL[0] <= running / len(code) <= WORDS_PER_CODE_CELL[-1]
    assert sum(len(pictures(cell)) for cell in code) in PICTURES
    lines = [[line for line in text.splitlines() if line.strip()] for text in shown]
    assert MEDIAN_LINES[0] <= median(map(len, lines)) <= MEDIAN_LINES[-1]
    assert max(len(text.splitlines()) for text in shown) <= MOST_LINES
    assert max(map(len, "\n".join(listings(lesson)).splitlines())) <= MOST_COLUMNS


def test_lesson_opens_and_closes_with_its_promises(lesson: Lesson) -> None:
    """A verb, a promise, a picture of the end; do, learn, need; and at the end the same, done."""
    first = lesson.cells[0].text
    assert re.match(r"# \S.*\n\n\*\*.+\*\*\n\n!\[.{30,}\]\(.+\)\n\n\*.+\*\n", first)
    for row in ("Do", "Learn", "Need", "Time"):
        assert f"| **{row}** | " in first
    last = "\n".join(cell.text for cell in lesson.cells[-2:])
    assert len(re.findall(r"^\* ☑ ", last, re.MULTILINE)) >= 5
    assert "## Sources" in last


def test_lesson_takes_its_steps(lesson: Lesson) -> None:
    """Guess before you look, break it, the real thing, and what was left out."""
    cells = [cell.text for cell in lesson.cells]
    assert [text for text in cells if re.search(r"^guess = None$", text, re.MULTILINE)]
    headings = "\n".join(line for text in cells for line in text.splitlines() if line[:1] == "#")
    for heading in ("Break it", "n practice", "oads not taken"):
        assert heading in headings or (heading == "n practice" and "On GPUs" in headings), heading


def test_every_exercise_says_what_it_asks_for(lesson: Lesson) -> None:
    """Required or optional, number, level, minutes, a goal, and a hint that is folded."""
    for answer in lesson.answers:
        text = statement(lesson, answer)
        assert re.search(r"\*\*(Required|Optional) · \d\d\.\d.*[●○]{3}", text), answer.exercise
        assert re.search(r"about \d+ minutes", text), answer.exercise
        assert "**Goal" in text, answer.exercise
        assert "<details>\n<summary>Hint" in text, answer.exercise


def test_exact_numbers_in_prose_are_those_of_a_cell(lesson: Lesson) -> None:
    """What was counted or measured stands in a cell, which fails once it is no longer so."""
    held, known = constants(lesson), FROM_SOURCES.get(lesson.name, set())
    markdown = [cell.text for cell in lesson.cells if cell.kind == "markdown"]
    found = [number for text in markdown for number in exact_numbers(text)]
    loose = [number for number in found if number not in known and not is_held(number, held)]
    assert not loose
    assert known <= set(found), "named as from a source, and no longer in the prose"


def test_every_year_in_prose_is_that_of_a_source(lesson: Lesson) -> None:
    markdown = "\n".join(cell.text for cell in lesson.cells if cell.kind == "markdown")
    text, _, sources = markdown.partition("## Sources")
    missing = set(_YEAR.findall(prose(text))) - set(_YEAR.findall(sources))
    assert not missing, "named in the prose, and none of the sources is of that year"


def test_every_picture_has_a_caption_that_states_something(lesson: Lesson) -> None:
    found = [call for cell in lesson.cells if cell.kind == "code" for call in pictures(cell)]
    assert found
    for call in found:
        assert len(caption(call).split()) >= 6, ast.unparse(call)[:100]


def test_words_that_talk_down_and_words_of_the_workshop_are_not_used(lesson: Lesson) -> None:
    for cell in lesson.cells:
        assert not (found := FOREIGN.search(cell.text)), found
        assert cell.kind == "code" or not (found := AVOIDED.search(prose(cell.text))), found


def test_only_running_text_is_counted() -> None:
    text = "# A title\nSee [the page](https://a.b/c_(d)) now.\n```python\nnot = prose\n```\n"
    assert words(text + "![alt text](x.png)\n<details>\n| a | table |\n## Sources\n* left out") == 6


def test_number_that_nothing_holds_is_seen() -> None:
    text = "Of 1,442 images 97% in 2.6 ms, 16.8 MB; `0.5`, 01.2 and step 7 are not counted."
    assert exact_numbers(text) == ["1,442", "97%", "2.6", "16.8"]
    held = {1442.0, 0.97, 16_777_216.0}
    assert [number for number in exact_numbers(text) if not is_held(number, held)] == ["2.6"]
    assert _YEAR.findall("Lamport (1978); a list of 2.1978 and 1,978") == ["1978"]


def test_picture_without_caption_is_seen() -> None:
    text = 'draw.lines({}, "a", "b")\ndraw.bars({}, caption="six words are in this one")'
    cell = Cell("x", "code", text, 1)
    assert [caption(call) for call in pictures(cell)] == ["", "six words are in this one"]
