"""Building and updating notebooks, on small lessons made for the purpose."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path

import nbformat
import pytest
from nbval.plugin import get_sanitize_patterns
from nbval_run import compare

from course_check.copies.folders import Folders, LessonError, replace_file
from course_check.copies.notebook import to_text
from course_check.copies.update import merge, update
from course_lib.__main__ import main as run_command
from course_staff.authoring import build as building
from course_staff.authoring.copies import learner_copy, solved_copy
from course_staff.authoring.execute import clean_environment, clean_text, execute, read_rules
from course_staff.authoring.lesson import STUB, Lesson
from course_staff.authoring.source import parse_lesson, with_ids

SOURCE = '''\
# %% [markdown] id="00-title"
# # Count
# One, two.

# %% id="00-setup"
def check(answer):
    assert answer(2) == [0, 1]
    print("right")

# %% exercise="count_to" role="answer" points=10 required=true difficulty=1
def count_to(n: int) -> list[int]:
    """The numbers below n."""
    ### BEGIN SOLUTION
    numbers = list(range(n))
    return numbers
    ### END SOLUTION

# %% exercise="count_to" role="try"
print(count_to(3))

# %% exercise="count_to" role="check"
check(count_to)

# %% id="00-end"
print("the end")
'''


def lesson_with(old: str = "", new: str = "") -> Lesson:
    assert old in SOURCE
    return parse_lesson(SOURCE.replace(old, new) if old else SOURCE, "00_count")


@pytest.fixture
def course(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    """A course with one small lesson, in a folder that is the working directory."""
    folders = Folders(tmp_path)
    folders.sources.mkdir(parents=True)
    (folders.sources / "00_count.py").write_text(SOURCE)
    folders.rules.write_text((root / "notebooks" / "sanitize.cfg").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(root))
    return folders


def fake_execution(notebook, root, **_) -> None:
    """As if every cell had printed its own id, and the last one drawn."""
    for count, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), 1):
        cell.execution_count = count
        cell.outputs = [nbformat.v4.new_output("stream", text=f"{cell.id}\n")]
    data = {"image/png": "AAAA", "text/plain": "<Figure>"}
    cell.outputs.append(nbformat.v4.new_output("display_data", data))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lessons are not executed: for tests in which it does not matter what they print."""
    monkeypatch.setattr(building, "execute", fake_execution)


# ------------------------------------------------------------------------------- sources


def test_ids_are_added_once_and_stay_when_a_cell_is_edited_or_moved():
    assert with_ids(SOURCE, "00_count") == SOURCE
    text = "# %% [markdown]\n# Hello\n\n# %%\na = 1\n\n# %%\na = 1\n"
    first = with_ids(text, "07_groups")
    assert with_ids(first, "07_groups") == first
    assert re.sub(r' id="07-[0-9a-f]{6}"', "", first) == text

    one, two, three = (cell.id for cell in parse_lesson(first, "07_groups").cells)
    *_, header, code = first.splitlines()
    first = first.replace(f"{header}\n{code}", "")
    edited = with_ids(f"{header}\na = 'another'\n\n# %%\nnew = 3\n\n{first}", "07_groups")
    cells = parse_lesson(edited, "07_groups").cells
    assert [cell.id for cell in cells if cell.text != "new = 3"] == [three, one, two]


ANSWER = SOURCE[SOURCE.index("# %% exercise") : SOURCE.index('# %% exercise="count_to" role="try"')]
TRY = '# %% exercise="count_to" role="try"\nprint(count_to(3))\n\n'
CHECK = '# %% exercise="count_to" role="check"\ncheck(count_to)\n\n'
BEGIN, END = "    ### BEGIN SOLUTION\n", "    ### END SOLUTION\n"

# What stands there instead of what; and the line of the cell that is named.
FIRST = ANSWER.split("\n")[0]
MALFORMED = {
    "no end": (END, "", 10),
    "not in a function": (f"{FIRST}\n", f"{FIRST}\n{BEGIN}a = 1\n{END}".replace("    ", ""), 10),
    "solution in the story": ('print("the end")', "def f():\n" + BEGIN + "    a = 1\n" + END, 24),
    "no parse": ("numbers = list(range(n))", "numbers = list(range(n)", 10),
    "no check": (CHECK, "", 10),
    "a stranger between": (TRY, TRY + '# %% id="00-x"\na = 1\n\n', 10),
    "used outside": ('print("the end")', "print(count_to(4))", 24),
    "no points": ("points=10 ", "", 10),
    "same id": ('id="00-end"', 'id="00-setup"', 24),
    "no id": (' id="00-end"', "", 24),
    "tags": ('id="00-end"', 'id="00-end" tags=["raises-exception"]', 24),
    "text above": ("# %% [markdown]", "import os\n\n# %% [markdown]", 1),
}


@pytest.mark.parametrize(("old", "new", "line"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_source_is_refused_in_one_line(old: str, new: str, line: int):
    with pytest.raises(LessonError, match=rf"^00_count\.py: malformed at line {line}: [^\n]+$"):
        lesson_with(old, new)


def test_a_refused_source_changes_no_file(course: Folders, quick: None):
    source = course.sources / "00_count.py"
    broken = SOURCE.replace(END, "").replace(' id="00-end"', "")
    source.write_text(broken)
    assert run_command(["build"]) == 1
    assert source.read_text() == broken
    assert not list(course.learner.glob("*.ipynb"))


# ------------------------------------------------------------------------------- copies


def test_the_learners_copy_has_stubs_and_the_solved_one_solutions():
    lesson = parse_lesson(SOURCE, "00_count")
    notebook = learner_copy(lesson)
    text = to_text(notebook)
    assert [cell.id for cell in notebook.cells] == [cell.id for cell in lesson.cells]
    for line in ("numbers = list(range(n))", "return numbers", "SOLUTION"):
        assert line not in text
    assert notebook.cells[2].source == (
        f'def count_to(n: int) -> list[int]:\n    """The numbers below n."""\n    {STUB}'
    )
    block = {"exercise": "count_to", "points": 10, "required": True, "difficulty": 1}
    for cell, role in zip(notebook.cells[2:5], ("answer", "try", "check"), strict=True):
        more = {"role": role, "tags": ["raises-exception"]}
        assert (block | more).items() <= cell.metadata.items()
    for cell in (*notebook.cells[:2], notebook.cells[5]):
        assert set(cell.metadata) == {"given"}
    assert all(not cell.get("outputs") for cell in notebook.cells)

    solved = solved_copy(lesson)
    assert "numbers = list(range(n))" in solved.cells[2].source
    assert "SOLUTION" not in to_text(solved)
    for cell in solved.cells:
        assert not {"given", "tags"} & set(cell.metadata), "a solution may not fail"


def test_links_are_as_deep_as_the_copy_that_they_are_in():
    links = "![a](../../figures/a.png) [b](../../README.md) <img src='../../c.png'> [d](01_d.ipynb)"
    lesson = lesson_with("One, two.", links)
    assert links in solved_copy(lesson).cells[0].source
    assert links.replace("../../", "../") in learner_copy(lesson).cells[0].source


def test_every_solution_of_a_class_becomes_a_stub():
    method = "    def {}(self):\n        ### BEGIN SOLUTION\n        {}\n        ### END SOLUTION\n"
    rest = ANSWER.partition("\n")[2]
    text = f"class count_to(list):\n{method.format('f', 'a = 1')}\n{method.format('g', 'b = 2')}"
    answer = lesson_with(rest, text + "\n").cells[2]
    assert answer.stub.count(STUB) == 2
    assert answer.solution_lines == ["a = 1", "b = 2"]
    assert "SOLUTION" not in answer.solved


# ------------------------------------------------------------------------------- outputs


CLEANED = {
    "\x1b[31mred\x1b[0m": "red",
    "File /home/ada/course/course_lib/trace.py:3": "File …/trace.py:3",
    "'/tmp/tmpq3/store'": "'…/store'",
    "file:///tmp/tmpq3/store": "file:///…/store",
    "/tmp/ipykernel_812/33.py, line 3": "cell.py, line 3",
    "<object at 0x7f0a1b2c3d4e>": "<object at 0x…>",
}
AS_IT_IS = (
    "https://pytorch.org/docs/index.html",
    "1/2/3 and ./x/y",
    "/dev/shm/x",
    "0xff",
    "0.12 s",
)


def test_outputs_are_cleaned_by_those_of_nbvals_rules_that_are_for_writing(root: Path):
    rules = read_rules(root / "notebooks" / "sanitize.cfg")
    for text, cleaned in (CLEANED | dict(zip(AS_IT_IS, AS_IT_IS, strict=True))).items():
        assert clean_text(text, rules) == clean_text(cleaned, rules) == cleaned
    assert {rule.pattern: new for rule, new in rules}.items() < nbvals_rules(root).items()


def nbvals_rules(root: Path) -> dict[str, str]:
    return dict(get_sanitize_patterns((root / "notebooks" / "sanitize.cfg").read_text()))


def compared(text: str, rules: dict[str, str]) -> str:
    for pattern, replacement in rules.items():
        text = re.sub(pattern, replacement, text)
    return text


@pytest.mark.timeout(60)
def test_no_rule_is_slow_on_long_lines(root: Path):
    """nbval applies them to everything that a cell prints, and some cells print too much."""
    for piece in ("x", "/a", "file:///", "~ ", "9 "):
        compared(piece * 100_000, nbvals_rules(root))


SAME = [("took 0.12 s", "took 11.5 s"), ("|    1.20 ms |", "|   11.20 ms |"), ("3 GB/s", "12 GB/s")]
SAME += [("1.2e-05 s", "3 s"), ("ratio ~1.3×", "ratio ~11.25×"), ("(pid 812)", "(pid 90)")]
DIFFERENT = [("ratio 1.3×", "ratio 1.4×"), ("accuracy 97.2 %", "accuracy 97.3 %")]
DIFFERENT += [("8 MB", "9 MB"), ("4 ranks", "5 ranks"), ("layer1s", "layer2s")]


def test_times_may_differ_and_nothing_else(root: Path):
    rules = nbvals_rules(root)
    for one, other in SAME + DIFFERENT:
        assert (compared(one, rules) == compared(other, rules)) is ((one, other) in SAME), one


# ------------------------------------------------------------------------------- build


@pytest.mark.slow
def test_build_check_nbval_and_an_altered_output(course: Folders, root: Path, tmp_path: Path):
    measured = 'import time\nprint(f"{time.perf_counter_ns() % 997} ms, ~{time.time_ns() % 97}×")'
    source = course.sources / "00_count.py"
    edit(source, "print(count_to(3))", "print(count_to(3))\nprint(object())")
    edit(source, 'print("the end")', f"{measured}\nprint('the end', __name__)")
    assert run_command(["build"]) == 0
    assert run_command(["build", "--check"]) == 0
    solved = course.solutions / "00_count.ipynb"
    stored = solved.read_text()
    assert "right" in stored
    assert "<object object at 0x…>" in stored

    edit(solved, "[0, 1, 2]", "[0, 1, 3]")
    (tmp_path / "empty").mkdir()
    done = compare(solved, course.rules, root, tmp_path / "empty")
    assert "1 failed, 5 passed" in done.stdout, done.stdout
    assert run_command(["build", "--check"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import os; os._exit(3)", "00_count, cell 00-end: Kernel died"),
        ("[].pop()", "00_count, cell 00-end: IndexError: pop from empty list"),
    ],
    ids=["dies", "raises"],
)
def test_a_cell_that_does_not_end_well_is_named(root: Path, code: str, sentence: str):
    with pytest.raises(LessonError, match=f"^{sentence}[^\n]*$"):
        execute(solved_copy(lesson_with('print("the end")', code)), root)


def test_a_notebook_that_is_too_large_is_not_written(course: Folders, quick, monkeypatch, capsys):
    monkeypatch.setattr(building, "LARGEST", 1_000)
    assert run_command(["build"]) == 1
    assert re.fullmatch(r"00_count: \d KB, and 1 are allowed\n", capsys.readouterr().err)
    assert not (course.solutions / "00_count.ipynb").exists()


def test_a_kernel_sees_nobodys_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("PYTEST_CURRENT_TEST", "JUPYTER_PATH", "MPLBACKEND"):
        monkeypatch.setenv(name, "somebody's")
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", "somebody's")
    environment = clean_environment(tmp_path, tmp_path)
    assert "somebody's" not in environment.values()
    assert environment["PYTHONPATH"].startswith(str(tmp_path))


def test_build_is_the_same_every_time_and_runs_only_what_changed(
    course: Folders, quick: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    assert run_command(["build"]) == 0
    files = [course.learner / "00_count.ipynb", course.solutions / "00_count.ipynb"]
    before = [path.read_bytes() for path in files]

    def refuse(*_, **__):
        raise AssertionError("executed although nothing had changed")

    monkeypatch.setattr(building, "execute", refuse)
    assert run_command(["build"]) == 0
    assert "up to date" in capsys.readouterr().out
    edit(course.root / WRITTEN, "One, two.", "One, two, three.")
    assert run_command(["build"]) == 0  # outputs hang on code, and no code has changed
    assert all("One, two, three." in path.read_text() for path in files)
    edit(course.root / WRITTEN, "One, two, three.", "One, two.")
    monkeypatch.setattr(building, "execute", fake_execution)
    assert run_command(["build", "--force", "00"]) == 0
    assert [path.read_bytes() for path in files] == before


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# What is changed in which file, and which notebooks drift from it.
WRITTEN, LEARNER = "notebooks/src/00_count.py", "notebooks/00_count.ipynb"
SOLVED = "notebooks/solutions/00_count.ipynb"
DRIFTS = {
    "markdown": (WRITTEN, "One, two.", "One.", [LEARNER, SOLVED]),
    "a solution": (WRITTEN, "numbers = list", "numbers = sorted", [SOLVED]),
    "an edited output": (SOLVED, '"00-end\\n"', '"invented\\n"', [SOLVED]),
    "another picture": (SOLVED, "AAAA", "BBBB", []),
    "no notebook": (SOLVED, "{", "<<<<<<< ours", [SOLVED]),
}


@pytest.mark.parametrize(("file", "old", "new", "drifted"), DRIFTS.values(), ids=DRIFTS.keys())
def test_check_names_what_drifted_and_build_mends_it(
    course: Folders, quick: None, capsys, file: str, old: str, new: str, drifted: list[str]
):
    assert run_command(["build"]) == 0
    assert run_command(["build", "--check"]) == 0
    assert capsys.readouterr().out.endswith("no drift in 1 lesson\n")
    edit(course.root / file, old, new)
    before = {path: path.stat().st_mtime_ns for path in course.root.rglob("*")}
    assert run_command(["build", "--check"]) == bool(drifted)
    assert {path: path.stat().st_mtime_ns for path in course.root.rglob("*")} == before
    way = "is not what its source makes; run: python -m course_lib build 00"
    assert capsys.readouterr().err.splitlines() == [f"{path} {way}" for path in drifted]
    assert run_command(["build"]) == 0
    assert run_command(["build", "--check"]) == 0


def test_a_notebook_without_a_source_is_drift_and_so_is_another_manifest(
    course: Folders, quick: None, capsys
):
    assert run_command(["build"]) == 0
    (course.learner / "01_old.ipynb").write_text("{}")
    assert run_command(["build", "--check"]) == 1
    assert "notebooks/01_old.ipynb has no source" in capsys.readouterr().err
    (course.learner / "01_old.ipynb").unlink()
    edit(course.learner / "manifest.json", '"points": 10', '"points": 90')
    assert run_command(["build", "--check"]) == 1
    assert "manifest.json is not what the lessons say" in capsys.readouterr().out


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch):
    path = tmp_path / "a.ipynb"
    replace_file(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


# ------------------------------------------------------------------------------- update

ANSWERED = "def count_to(n):\n    return [*range(n)]"
ANSWER_WRITTEN, FIN = {"count_to-answer": ANSWERED}, {"00-end": 'print("fin")'}
GUESS = {"00-end": "guess = 3"}
NEW_TITLE = ("One, two.", "One, two, three.")
NEW_END = ('print("the end")', 'print("fin")')
NO_END = ('\n# %% id="00-end"\nprint("the end")\n', "")
TITLE = "the cell that begins 'guess = 3': "

# What the learner has written into cells; what has changed in the lesson; what stands in cells of
# the merged copy; what is named.
MERGES = {
    "an answer": (ANSWER_WRITTEN, ("numbers below", "whole numbers below"), ANSWER_WRITTEN, []),
    "an untouched story": ({}, NEW_END, FIN, []),
    "an edited story": (GUESS, NEW_TITLE, GUESS | {"00-title": "# Count\nOne, two, three."}, []),
    "edited by both": (GUESS, NEW_END, FIN, [TITLE + "yours and the lesson's have both changed"]),
    "an edited cell gone": (GUESS, NO_END, {}, [TITLE + "the lesson has this cell no more"]),
    "an untouched cell gone": ({}, NO_END, {}, []),
}


def cell_of(notebook, id: str):
    return next(cell for cell in notebook.cells if cell.id == id)


@pytest.mark.parametrize(
    ("written", "changed", "expected", "named"), MERGES.values(), ids=MERGES.keys()
)
def test_what_a_learner_has_written_is_carried_or_named(written, changed, expected, named):
    mine, new = learner_copy(lesson_with()), learner_copy(lesson_with(*changed))
    for id, text in written.items():
        cell_of(mine, id).source = text
    merged = merge(mine, new)
    assert [cell.id for cell in merged.notebook.cells] == [cell.id for cell in new.cells]
    assert expected.items() <= {cell.id: cell.source for cell in merged.notebook.cells}.items()
    assert merged.unplaced == named
    assert merged.carried == len(written) - len(named)
    assert merge(merged.notebook, new).notebook == merged.notebook


def test_own_cells_keep_their_neighbours():
    mine, new = learner_copy(lesson_with()), learner_copy(lesson_with(*NEW_TITLE))
    for place, id in ((0, "top"), (3, "one"), (4, "two")):
        mine.cells.insert(place, nbformat.v4.new_code_cell("a = 1", id=id))
    ids = [cell.id for cell in merge(mine, new).notebook.cells]
    assert ids[:5] == ["top", "00-title", "00-setup", "one", "two"]
    assert len(ids) == 9


def test_outputs_of_unchanged_cells_stay():
    mine = learner_copy(lesson_with())
    output = nbformat.v4.new_output("stream", text="seen\n")
    for id in ("00-setup", "00-end"):
        cell_of(mine, id).update(outputs=[output], execution_count=4)
    notebook = merge(mine, learner_copy(lesson_with('print("right")', 'print("yes")'))).notebook
    assert cell_of(notebook, "00-end").outputs == [output]
    assert cell_of(notebook, "00-setup").outputs == []


def test_an_answer_is_found_when_an_editor_dropped_the_ids():
    mine = learner_copy(lesson_with())
    cell_of(mine, "count_to-answer").source = ANSWERED
    for cell in mine.cells:
        del cell["id"]
    merged = merge(mine, learner_copy(lesson_with(*NEW_TITLE))).notebook
    assert cell_of(merged, "count_to-answer").source == ANSWERED


@pytest.fixture
def copied(course: Folders, quick: None) -> Path:
    """The lesson is built, and the learner has a copy."""
    assert run_command(["build"]) == 0
    assert run_command(["update", "--missing"]) == 0
    copy = course.work / "00_count.ipynb"
    assert copy.read_text() == (course.root / LEARNER).read_text()
    return copy


def test_a_copy_is_changed_only_with_a_backup(course: Folders, copied: Path):
    notebook = nbformat.read(copied, as_version=4)
    cell_of(notebook, "count_to-answer").source = ANSWERED
    copied.write_text(to_text(notebook))
    before, now = copied.read_bytes(), datetime(2026, 5, 4, 3, 2, 1)
    lesson, backup = course.root / LEARNER, "backup/00_count.2026-05-04-030201-000000.ipynb"

    assert list(update(copied, lesson, now)) == ["work/00_count.ipynb: up to date"]
    assert copied.read_bytes() == before
    assert not (course.work / "backup").exists()

    edit(course.root / WRITTEN, *NEW_TITLE)
    assert run_command(["build"]) == 0
    assert list(update(copied, lesson, now)) == [
        f"work/00_count.ipynb: updated, 1 cell of yours carried over; the old one is work/{backup}"
    ]
    assert (course.work / backup).read_bytes() == before
    edit(course.root / WRITTEN, *NEW_END)
    assert run_command(["build"]) == 0
    with pytest.raises(FileExistsError):
        list(update(copied, lesson, now))
    assert (course.work / backup).read_bytes() == before


def test_a_copy_that_is_no_notebook_is_named_and_left(copied: Path, capsys):
    copied.write_text("mine")
    assert run_command(["update", "--missing"]) == 0
    assert run_command(["update"]) == 1
    assert re.fullmatch("work/00_count.ipynb is not a notebook: .*\n", capsys.readouterr().err)
    assert copied.read_text() == "mine"


def test_a_folder_that_takes_no_copies_is_told_in_a_line(course: Folders, quick, capsys):
    assert run_command(["build"]) == 0
    course.work.write_text("a file where the folder should be")
    capsys.readouterr()
    assert run_command(["update", "--missing"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "work cannot be written: " in line


def test_outside_of_a_course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path):
    monkeypatch.chdir(tmp_path)
    assert Folders.found().root == root
    monkeypatch.chdir(root / "notebooks")
    assert Folders.found().root == root
