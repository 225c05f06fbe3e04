"""From notebooks to marks, by pytest and nbval as in earnest."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest
import zoo
from conftest import TESTS, answer_cell, code, notebook, written

from course_lib.__main__ import main
from course_lib.checks.checking import verdict_on
from course_lib.checks.exercise import find
from course_lib.checks.in_rank import Answer
from course_lib.grading import manifest, marks, report
from course_lib.grading.answers import Found, Submission
from course_lib.grading.grade import named
from course_lib.grading.judge import CarriedPlayer, Timing
from course_lib.grading.policy import Policy
from course_lib.notebooks.copies import solved_copy, to_text
from course_lib.notebooks.lesson import LessonError
from course_lib.notebooks.source import parse_lesson
from course_lib.simulated import compat

ROOT = TESTS.parent
HANG = "def ring_reduce_scatter(chunks):\n    while True:\n        pass\n"
BY_PARTS = """
def ring_all_reduce(tensor):
    flat = tensor.reshape(-1).clone()
    chunks = list(flat.tensor_split(dist.get_world_size()))
    ring_all_gather(chunks, ring_reduce_scatter(chunks))
    tensor.copy_(flat.reshape(tensor.shape))
"""


def block(exercise: str, points: int, required: bool, name: str) -> str:
    """An exercise of a lesson's source, solved by a right answer of the zoo."""
    source = zoo.source(exercise, name)
    body = source[source.index(f"def {exercise}") :].splitlines()
    inside = "\n".join(["    ### BEGIN SOLUTION", *body[1:], "    ### END SOLUTION"])
    return (f'# %% exercise="{exercise}" role="answer" points={points} '
            f"required={str(required).lower()} difficulty=1\n{body[0]}\n{inside}\n\n"
            f'# %% exercise="{exercise}" role="check"\ncheck({exercise})\n\n')  # fmt: skip


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course with one small lesson of three exercises, of which the last needs the others."""
    root = tmp_path_factory.mktemp("course")
    source = ('# %% id="04-a"\nimport torch\nimport torch.distributed as dist\n\n'
              + block("ring_reduce_scatter", 4, False, "owns_the_next")
              + block("ring_all_gather", 4, False, "from_the_owned_one")
              + block("ring_all_reduce", 10, True, "in_two_halves"))  # fmt: skip
    lesson = parse_lesson(source, "04_small")
    folder = root / "notebooks" / "solutions"
    folder.mkdir(parents=True)
    (folder / "04_small.ipynb").write_text(to_text(solved_copy(lesson)))
    made = manifest.made_from([lesson], "1.0")
    (root / "notebooks" / "manifest.json").write_text(json.dumps(made))
    return root


def ring_notebook(**answers: str) -> dict:
    return notebook([answer_cell(source, name) for name, source in answers.items()], "04_small")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_submissions_get_the_marks_that_were_predicted(
    course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Three submissions: all right; one exercise hangs and a later one needs it; and one that
    tries what a notebook can try. Then the same again: nothing is graded twice."""
    gather = zoo.source("ring_all_gather", "from_the_owned_one")
    scatter = zoo.source("ring_reduce_scatter", "owns_the_next")
    inbox = tmp_path / "inbox"
    written(inbox / "anna.ipynb", ring_notebook(
        ring_reduce_scatter=scatter, ring_all_gather=gather, ring_all_reduce=BY_PARTS))  # fmt: skip
    written(inbox / "bert.ipynb", ring_notebook(
        ring_reduce_scatter=HANG, ring_all_reduce=BY_PARTS))  # fmt: skip
    tricks = ring_notebook(
        ring_reduce_scatter="# NBVAL_SKIP\n" + scatter,
        ring_all_reduce="def ring_all_reduce(tensor):\n    dist.barrier()\n",
    )
    tricks["cells"][1]["metadata"] |= {"points": 1000, "tags": ["nbval-skip"]}
    tricks["cells"].append(code("print('100')", "ring_all_reduce-check", exercise="ring_all_reduce",
                                role="check", tags=["raises-exception"]))  # fmt: skip
    tricks["cells"][-1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "passed"}]
    written(inbox / "carl.ipynb", tricks)
    for name in ("conftest", "torch", "course_lib", "nbval", "sitecustomize"):
        written(inbox / f"{name}.py", "raise SystemExit('shadowed')\n")
    policy = written(tmp_path / "policy.toml", "[limits]\nplay_seconds = 2\nmemory_mb = 300\n"
                     "[marks]\noptional = 'bonus'\npoints = { ring_all_gather = 6 }\n")  # fmt: skip
    out = tmp_path / "out"
    command = ["grade", str(inbox), "--out", str(out), "--policy", str(policy)]
    monkeypatch.chdir(course)

    assert main(command) == 0
    rows = {row["submission"]: row for row in csv.DictReader((out / "grades.csv").open())}
    assert {n: (r["points"], r["of"]) for n, r in rows.items()} == {
        "anna": ("20", "10"), "bert": ("10", "10"), "carl": ("0", "10")}  # fmt: skip
    assert rows["bert"]["ring_reduce_scatter diagnosis"] == "04.hangs"
    assert rows["bert"]["ring_all_gather reason"] == "its cell is missing"
    assert "marker of nbval" in rows["carl"]["ring_reduce_scatter reason"]

    page = (out / "feedback" / "bert.html").read_text()
    assert "answers to the earlier exercises" in page
    assert "04.hangs" in page
    assert "http" not in page, "complete in itself"
    assert "data:image/png" not in page, "nothing was said, and nobody waits for anybody"
    page = (out / "feedback" / "carl.html").read_text()
    assert 'src="data:image/png' in page, "what the ranks said, in a case that learners see"
    for name in ("anna", "bert", "carl"):
        text = (out / "feedback" / f"{name}.html").read_text()
        assert "Traceback" not in text and "expected" not in text
        assert (out / "oral" / f"{name}.md").exists()
    suites = xml.parse(out / "junit.xml").getroot()
    cells = {p.get("value") for p in suites.iter("property") if p.get("name") == "cell"}
    assert cells == {f"{e}-check" for e in (
        "ring_reduce_scatter", "ring_all_gather", "ring_all_reduce")}  # fmt: skip
    ours = xml.parse(out / "work" / "bert" / "nbval.xml").getroot()
    assert {c.get("name"): c.find("failure") is not None for c in ours.iter("testcase")} == {
        "grading-begin": False, "ring_reduce_scatter-answer": False,
        "ring_reduce_scatter-check": True, "ring_all_reduce-answer": False,
        "ring_all_reduce-check": False}  # fmt: skip
    assert json.loads((out / "results" / "anna.json").read_text())["score"] == 20

    capsys.readouterr()
    stamps = {p: p.stat().st_mtime_ns for p in out.rglob("done.json")}
    assert main(command) == 0
    assert capsys.readouterr().out.count("graded before") == 3
    assert stamps == {p: p.stat().st_mtime_ns for p in out.rglob("done.json")}


def test_submissions_are_named_so_that_they_can_be_told_apart(tmp_path: Path) -> None:
    for name in ("anna/hw.ipynb", "bert/hw.ipynb", "bert/other one.ipynb",
                 "bert/.ipynb_checkpoints/hw.ipynb"):  # fmt: skip
        written(tmp_path / name, "{}")
    assert [n for n, _ in named([str(tmp_path)])] == ["anna__hw", "bert__hw", "other_one"]


def test_no_name_leads_out_of_the_folder_or_meets_another(tmp_path: Path) -> None:
    files = ["...ipynb", ".ipynb", "a b.ipynb", "a_b.ipynb", "A_b.ipynb", "x" * 240 + ".ipynb",
             "x" * 239 + "y.ipynb", "é" * 120 + ".ipynb", "anna/1/2/3/hw.ipynb",
             "bert/1/2/3/hw.ipynb"]  # fmt: skip
    for name in files:
        written(tmp_path / name, "{}")
    names = [n for n, _ in named([str(tmp_path)])]
    assert len({n.casefold() for n in names}) == len(files)
    assert all(not n.startswith(".") and "/" not in n and len(n.encode()) < 140 for n in names)
    (tmp_path / "inbox").symlink_to(tmp_path / "anna")
    with pytest.raises(LessonError, match="is a link"):
        list(named([str(tmp_path / "inbox")]))


# ---------------------------------------------------------------------------------- marks, manifest

LEVELS = {"core": {"state": "passed"}, "budget": {"state": "failed"}, "sturdy": {"state": "passed"}}


def marked(tmp_path: Path, policy: Policy, required: bool) -> marks.Marked:
    item = manifest.Item("e", "01.1", 20, required, {"core": 60, "budget": 30, "sturdy": 10},
                         "e-answer", "e-check", "")  # fmt: skip
    release = manifest.Manifest("1", {"01_x": [item]}, {}, "")
    written(tmp_path / "e.json", {"levels": LEVELS, "points": 100, "passed": False})
    submission = Submission("01_x", {"e": Found("e", "def e(): pass")})
    return marks.mark("x", submission, release, policy, tmp_path, "")


@pytest.mark.parametrize(
    ("policy", "required", "points", "worth"),
    [
        (Policy(), True, 14, 20), (Policy(), False, 14, 20),
        (Policy(optional="bonus"), False, 14, 0), (Policy(optional="none"), False, 0, 0),
        (Policy(points={"e": 10}), True, 7, 10), (Policy(optional="none"), True, 14, 20),
    ],
)  # fmt: skip
def test_marks_are_those_of_manifest_and_policy(
    policy: Policy, required: bool, points: float, worth: float, tmp_path: Path
) -> None:
    got = marked(tmp_path, policy, required)
    assert (got.points, got.worth) == (points, worth)


def test_no_record_is_zero_with_a_reason(tmp_path: Path) -> None:
    got = marked(tmp_path, Policy(), True)
    (tmp_path / "e.json").unlink()
    item = manifest.Item("e", "01.1", 20, True, {"core": 100}, "a", "c", "")
    release = manifest.Manifest("1", {"01_x": [item]}, {}, "")
    answered = Submission("01_x", {"e": Found("e", "x")})
    lost = marks.mark("x", answered, release, Policy(), tmp_path, "")
    assert got.points > lost.points == 0
    assert "the time was over" in lost.marks[0].reason


def test_the_summary_says_how_many_and_why() -> None:
    def one(name: str, points: float, **more: str) -> marks.Marked:
        mark = marks.Mark("e", "01.1", "c", 10, points, True, "full", **more)
        return marks.Marked(name, "01_x", [mark])

    bad = [marks.Marked(f"bad{n}", "", [], problem="not a notebook: no JSON") for n in range(12)]
    text = report.summary([one("a", 10), one("b", 0, reason="not written yet"), one("c", 6), *bad])
    assert "15 submissions: 1 full, 1 in part, 1 none; mean 53%" in text
    assert "12 not gradable: bad0" in text and "and 2 more" in text
    assert re.search(r"01\.1 e +1 full, 1 in part, 1 none; mean 53%\n +1 × not written yet", text)


def test_cells_that_a_spreadsheet_would_run_are_quoted() -> None:
    mark = marks.Mark("e", "1", "c", 1, 0, True, "full", reason="=HYPERLINK(1)")
    item = manifest.Item("e", "1", 1, True, {}, "a", "c", "")
    release = manifest.Manifest("1", {"x": [item]}, {}, "")
    assert "'=HYPERLINK" in report.grades([marks.Marked("-name", "x", [mark])], release)
    assert "\n'-name" in report.grades([marks.Marked("-name", "x", [mark])], release)


def test_build_check_holds_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    shutil.copytree(ROOT / "notebooks" / "src", tmp_path / "notebooks" / "src")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(manifest.building, "main", lambda args: 0)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = tmp_path / "notebooks" / "manifest.json"
    path.write_text((ROOT / "notebooks" / "manifest.json").read_text())
    assert main(["build", "--check"]) == 0
    path.write_text(path.read_text().replace('"points": 10', '"points": 90'))
    assert main(["build", "--check"]) == 1
    assert "manifest.json is not what the lessons say" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[marks]\noptional = 'maybe'", "optional is one of"),
        ("[limits]\nmemory = 3", "has no memory"),
        ("[limits]\nmemory_mb = -3", "memory_mb"),
        ("[limits]\nmemory_mb = '3'", "memory_mb"),
        ("[what]\nx = 1", "no section"),
        ("[marks", "policy.toml"),
        ("[marks]\npoints = { a = -1 }", "points"),
    ],
)
def test_a_policy_that_cannot_be_followed_is_one_line(text, said, tmp_path, capsys) -> None:
    path = written(tmp_path / "policy.toml", text)
    code_ = main(["grade", str(path), "--out", str(tmp_path / "out"), "--policy", str(path)])
    assert code_ == 2
    error = capsys.readouterr().err
    assert re.search(said, error) and error.count("\n") == 1


def test_without_the_simulator_grading_refuses_in_one_line(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(compat, "missing", lambda: "this torch cannot")
    path = written(tmp_path / "submission.ipynb", "{}")
    assert main(["grade", str(path), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "this torch cannot" in error and error.count("\n") == 1


def test_without_the_simulator_no_answer_runs_outside_the_walls(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(compat, "missing", lambda: "this torch cannot")
    source = f"open({str(tmp_path / 'escaped')!r}, 'w')\ndef exchange(mine): return mine\n"
    player = CarriedPlayer(None, Timing(), set())
    verdict = verdict_on(find("exchange"), Answer("exchange", source=source, file="a.py"), player)
    assert not (tmp_path / "escaped").exists() and not verdict.passed and not verdict.points
