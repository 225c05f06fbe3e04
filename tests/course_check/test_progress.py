"""What check notes of a learner's way, and the map that is made of it."""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import ipykernel.ipkernel  # noqa: F401  # as in a notebook, before IPython is replaced
import nbformat
import pytest
import torch.distributed as dist
import zoo

from course_check.copies.folders import Folders
from course_check.copies.progress import LEGEND, NOTES, Map, read_best, record
from course_check.copies.update import write_map
from course_lib import check
from course_lib.__main__ import main as run_command

CORE = {"core": True, "budget": False, "sturdy": False}
BETTER = CORE | {"sturdy": True}
SOLVED = dict.fromkeys(CORE, True)


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    """Two lessons and a learner's folder, in which, as it seems, a notebook runs."""
    folders = Folders(tmp_path)
    folders.work.mkdir()
    folders.solutions.mkdir(parents=True)
    for file, title, *exercises in (
        ("00_count.ipynb", "Count together", ("count_to", True)),
        ("01_talk.ipynb", "Talk without an end", ("talk", True), ("listen", False)),
    ):
        cells = [nbformat.v4.new_markdown_cell(f"# {title}\nAnd more.\n\n# Not this one")]
        for name, required in exercises:
            metadata = {"exercise": name, "role": "answer", "required": required}
            cells.append(nbformat.v4.new_markdown_cell("**Goal.**", id=f"{name}-goal"))
            cells.append(nbformat.v4.new_code_cell(metadata=metadata, id=f"{name}-answer"))
        nbformat.write(nbformat.v4.new_notebook(cells=cells), folders.learner / file)
    monkeypatch.chdir(folders.work)
    seems_a_notebook(monkeypatch)
    return folders


def seems_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(kernel=object(), compile=None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


# ---- what check notes ----------------------------------------------------------------------------


def test_better_replaces_worse_and_never_the_other_way_round(course: Folders):
    noted = []
    for levels in ({"core": False}, CORE, BETTER, CORE, {"core": False}, SOLVED, BETTER, SOLVED):
        record("talk", levels)
        noted.append(read_best(course.work)["talk"].levels)
    assert noted == [{}, CORE, BETTER, BETTER, BETTER, SOLVED, SOLVED, SOLVED]
    assert read_best(course.work)["talk"].day == f"{date.today()}"
    assert len((course.work / NOTES).read_text().split("\n")) == 1 + 3, "only what is better"


def test_it_is_harmless_when_deleted_damaged_or_not_writable(course: Folders, capsys):
    record("talk", CORE)
    whole = (course.work / NOTES).read_text()
    others = ('{"exercise": "talk", "levels": {"core": 1}}', '{"exercise": ["talk"], "levels": {}}')
    for damage in ("[1, 2", *others, "null", "\ufffd", "[" * 100_000):
        (course.work / NOTES).write_text(whole + "\n" + damage)
        record("count_to", SOLVED)
        assert read_best(course.work)["talk"].levels == CORE
        assert read_best(course.work)["count_to"].levels == SOLVED
    (course.work / NOTES).write_bytes(b"\xff\xfe\0" + whole.encode())
    record("count_to", SOLVED)
    assert read_best(course.work)["count_to"].levels == SOLVED

    (course.work / NOTES).unlink()
    assert "Next: 00" in str(Map.found())
    (course.work / NOTES).mkdir()  # as little to be written as a file of somebody else's
    record("talk", CORE)
    said = capsys.readouterr().out
    assert said == (
        "work/progress.jsonl cannot be written (Is a directory): the map will not show this.\n"
    )
    assert "Next: 00" in str(Map.found())


def record_many(work: Path, names: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        seems_a_notebook(patch)
        patch.chdir(work)
        for name in names:
            record(name, CORE)
            record(name, SOLVED)


def test_notebooks_at_once_lose_nothing(course: Folders):
    names = [[f"{who}_{number}" for number in range(25)] for who in range(4)]
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=record_many, args=(course.work, part)) for part in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    noted = read_best(course.work)
    assert set(noted) == {name for part in names for name in part}
    assert all(best.levels == SOLVED for best in noted.values())


@pytest.mark.parametrize("where", ["notebooks", "notebooks/solutions", "alone/work", "nowhere"])
def test_a_notebook_elsewhere_notes_nothing(course: Folders, monkeypatch, where: str):
    """Who reads a solution; a folder without the course, as in Colab; one that is gone."""
    (course.root / where).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(course.root / where)
    if where == "nowhere":
        (course.root / where).rmdir()
    record("talk", SOLVED)
    assert not list(course.root.rglob(NOTES))


def test_only_a_notebook_notes(course: Folders, monkeypatch):
    for shell in (None, SimpleNamespace()):  # a script, a prompt
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda s=shell: s))
        record("talk", SOLVED)
    assert not (course.work / NOTES).exists()


def test_check_notes_its_verdict(course: Folders):
    space = {"dist": dist, "__name__": "__main__"}
    exec(zoo.source("my_share", "by_divmod"), space)
    check(space["my_share"])  # type: ignore[arg-type]
    assert read_best(course.work)["my_share"].levels == {"core": True, "sturdy": True}


def test_to_note_and_to_show_needs_neither_torch_nor_jupyter():
    show = "print({'nbformat', 'torch'} & set(sys.modules))"
    probe = f"import sys, course_check.copies.progress\n{show}"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


# ---- the map -------------------------------------------------------------------------------------


def test_untouched_it_is_a_map_of_the_course(root: Path, tmp_path: Path, monkeypatch, capsys):
    """Of this course: every lesson and every exercise, in order, by what the notebooks say."""
    (tmp_path / "notebooks").mkdir()
    expected = []
    for file in sorted((root / "notebooks").glob("*.ipynb")):
        (tmp_path / "notebooks" / file.name).write_text(file.read_text())
        cells = nbformat.read(file, as_version=4).cells
        title = cells[0].source.partition("\n")[0].removeprefix("# ")
        expected.append(f"{file.name[:2]} {title}")
        for cell in cells:
            if cell.metadata.get("role") == "answer":
                kind = "" if cell.metadata["required"] else " optional"
                expected.append(f"○ {cell.metadata['exercise']}{kind}")
    monkeypatch.chdir(tmp_path)
    assert run_command(["progress"]) == 0
    assert not (tmp_path / "work").exists(), "it only looks"
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert said == [*expected, "", LEGEND, f"Next: {expected[0]}"]


def test_it_says_what_was_reached_and_what_comes_next(course: Folders):
    record("count_to", CORE)
    said = str(Map.found())
    assert re.search(rf"◐ count_to +core  {date.today()}\n", said)
    assert said.endswith("Next: 01  Talk without an end"), "more than core is a choice"
    record("talk", SOLVED)
    said = str(Map.found())
    assert re.search(r"● talk +core, budget, sturdy", said)
    assert re.search(r"○ listen +optional\n", said)
    assert said.endswith("Every required exercise has its core.")


def test_the_page_has_the_map_with_links_and_is_the_same_each_time(course: Folders):
    page = course.work / "map.ipynb"
    assert run_command(["update", "--missing"]) == 0
    first = page.read_text()
    assert run_command(["update"]) == 0
    assert page.read_text() == first
    record("talk", CORE)
    write_map(page)
    shown = nbformat.read(page, as_version=4).cells[0].outputs[0].data["text/markdown"]
    assert shown == Map.found()._repr_markdown_()
    assert "| 01 | [Talk without an end](01_talk.ipynb) |" in shown
    assert re.search(r"\[talk\]\(01_talk\.ipynb#cell-id=talk-goal\)[^|]*\(core\) \|", shown)
    for target in re.findall(r"\]\(([^)#]+)", shown):
        assert (course.work / target).exists()


def test_what_a_learner_adds_to_the_page_stays(course: Folders):
    page = course.work / "map.ipynb"
    write_map(page)
    notebook = nbformat.read(page, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell("my plan"))
    nbformat.write(notebook, page)
    record("count_to", SOLVED)
    write_map(page)
    mine, course_map, legend = nbformat.read(page, as_version=4).cells
    assert mine.source == "my plan"
    assert "● " in legend.source
    assert "●\N{NO-BREAK SPACE}[count_to]" in course_map.outputs[0].data["text/markdown"]
    for damage in ("", "{}", "<<<<<<<"):
        page.write_text(damage)
        write_map(page)
        assert [cell.id for cell in nbformat.read(page, as_version=4).cells] == ["map", "legend"]


def test_a_page_that_cannot_be_written_keeps_nobody_from_the_lessons(course: Folders):
    (course.work / "map.ipynb").mkdir()
    assert run_command(["update", "--missing"]) == 0
    assert (course.work / "01_talk.ipynb").exists()
