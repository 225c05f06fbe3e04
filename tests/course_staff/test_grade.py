"""From notebooks to marks, by pytest and nbval as in earnest."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as xml

import pytest
import zoo
from conftest import TESTS, answer_cell, code, notebook, written

from course_check.checking import verdict_on
from course_check.copies.folders import LessonError
from course_check.copies.notebook import to_text
from course_check.harness.answer import Answer
from course_exercises.catalogue import find
from course_lib.__main__ import main
from course_sim.isolation import compat
from course_staff import manifest
from course_staff.authoring.copies import solved_copy
from course_staff.authoring.source import parse_lesson
from course_staff.grading import exports, feedback, grade, marks
from course_staff.grading.answers import Found, Submission
from course_staff.grading.carried_player import CarriedPlayer
from course_staff.grading.policy import SHOWS, Policy
from course_staff.grading.processes import RankServer
from course_staff.grading.students import Student, read_roster, whose
from course_staff.grading.walls import Limits

ROOT = TESTS.parent
slow = pytest.mark.slow
pytestmark = pytest.mark.timeout(300)
POLICY = """
[limits]
play_seconds = 2
memory_mb = 300
[marks]
optional = 'bonus'
points = { ring_all_gather = 6 }
"""
BARRIER = "def ring_all_reduce(tensor):\n    dist.barrier()\n"
HANG = "def ring_reduce_scatter(chunks):\n    while True:\n        pass\n"
BY_PARTS = """
def ring_all_reduce(tensor):
    flat = tensor.reshape(-1).clone()
    chunks = list(flat.tensor_split(dist.get_world_size()))
    ring_all_gather(chunks, ring_reduce_scatter(chunks))
    tensor.copy_(flat.reshape(tensor.shape))
"""


def block(exercise: str, points: int, required: bool) -> str:
    """An exercise of a lesson's source, solved by the first right answer of the zoo."""
    source = next(iter(zoo.right(exercise).values()))
    body = source[source.index(f"def {exercise}") :].splitlines()
    inside = "\n".join(["    ### BEGIN SOLUTION", *body[1:], "    ### END SOLUTION"])
    return (
        f'# %% exercise="{exercise}" role="answer" points={points} '
        f"required={str(required).lower()} difficulty=1\n{body[0]}\n{inside}\n\n"
        f'# %% exercise="{exercise}" role="check"\ncheck({exercise})\n\n'
    )


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course with one small lesson of three exercises, of which the last needs the others."""
    root = tmp_path_factory.mktemp("course")
    source = (
        '# %% id="04-a"\nimport torch\nimport torch.distributed as dist\n'
        + "from torch import Tensor\n\n"
        + block("ring_reduce_scatter", 4, False)
        + block("ring_all_gather", 4, False)
        + block("ring_all_reduce", 10, True)
    )
    lesson = parse_lesson(source, "04_small")
    folder = root / "notebooks" / "solutions"
    folder.mkdir(parents=True)
    (folder / "04_small.ipynb").write_text(to_text(solved_copy(lesson)))
    made = manifest.made_from([lesson], "1.0")
    (root / "notebooks" / "manifest.json").write_text(json.dumps(made))
    return root


def ring_notebook(**answers: str) -> dict:
    return notebook([answer_cell(source, name) for name, source in answers.items()], "04_small")


@pytest.fixture(scope="module")
def graded(
    course: Path, tmp_path_factory: pytest.TempPathFactory, ranks: RankServer
) -> Iterator[tuple[Path, list[str]]]:
    """Three submissions: all right; one exercise hangs and a later one needs it; and one that
    tries what a notebook can try."""
    folder = tmp_path_factory.mktemp("graded")
    gather = zoo.source("ring_all_gather", "solution")
    scatter = zoo.source("ring_reduce_scatter", "solution")
    inbox = folder / "inbox"
    written(
        inbox / "anna.ipynb",
        ring_notebook(
            ring_reduce_scatter=scatter, ring_all_gather=gather, ring_all_reduce=BY_PARTS
        ),
    )
    written(inbox / "bert.ipynb", ring_notebook(ring_reduce_scatter=HANG, ring_all_reduce=BY_PARTS))
    tricks = ring_notebook(ring_reduce_scatter="# NBVAL_SKIP\n" + scatter, ring_all_reduce=BARRIER)
    tricks["cells"][1]["metadata"] |= {"points": 1000, "tags": ["nbval-skip"]}
    tricks["cells"].append(
        code(
            "print('100')",
            "ring_all_reduce-check",
            exercise="ring_all_reduce",
            role="check",
            tags=["raises-exception"],
        )
    )
    tricks["cells"][-1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "passed"}]
    written(inbox / "carl.ipynb", tricks)
    for name in ("conftest", "torch", "course_lib", "nbval", "sitecustomize"):
        written(inbox / f"{name}.py", "raise SystemExit('shadowed')\n")
    policy = written(folder / "policy.toml", POLICY)
    command = ["grade", str(inbox), "--out", str(folder / "out"), "--policy", str(policy)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(course)
        patch.setattr(grade, "RankServer", lambda: nullcontext(ranks))
        assert main(command) == 0
        yield folder / "out", command


def table(out: Path) -> dict[str, dict[str, str]]:
    return {row["submission"]: row for row in csv.DictReader((out / "grades.csv").open())}


@slow
def test_submissions_get_the_marks_that_were_predicted(graded: tuple[Path, list[str]]) -> None:
    out, _ = graded
    rows = table(out)
    assert {n: (r["points"], r["of"]) for n, r in rows.items()} == {
        "anna": ("20", "10"),
        "bert": ("10", "10"),
        "carl": ("0", "10"),
    }
    assert rows["bert"]["ring_reduce_scatter diagnosis"] == "04.hangs"
    assert rows["bert"]["ring_all_gather reason"] == "its cell is missing"
    assert "marker of nbval" in rows["carl"]["ring_reduce_scatter reason"]
    suites = xml.parse(out / "junit.xml").getroot()
    cells = {p.get("value") for p in suites.iter("property") if p.get("name") == "cell"}
    assert cells == {
        f"{e}-check" for e in ("ring_reduce_scatter", "ring_all_gather", "ring_all_reduce")
    }
    assert ran(out, "bert") == {
        "grading-begin": False,
        "ring_reduce_scatter-answer": False,
        "ring_reduce_scatter-check": True,
        "ring_all_reduce-answer": False,
        "ring_all_reduce-check": False,
    }


def ran(out: Path, name: str) -> dict[str, bool]:
    """The cells that nbval ran for a submission, and whether each failed."""
    ours = xml.parse(out / "work" / name / "nbval.xml").getroot()
    return {str(c.get("name")): c.find("failure") is not None for c in ours.iter("testcase")}


@slow
def test_feedback_tells_what_check_would(graded: tuple[Path, list[str]]) -> None:
    out, _ = graded
    pages = {n: unescape((out / "feedback" / f"{n}.html").read_text()) for n in table(out)}
    assert not [n for n, page in pages.items() if "http" in page or "Traceback" in page]
    assert "answers to the earlier exercises" in pages["bert"] and "04.hangs" in pages["bert"]
    assert "20 of 10 (200%, bonus included)" in pages["anna"]
    assert "data:image/png" not in pages["bert"], "nothing was said, and nobody waits for anybody"
    assert 'src="data:image/png' in pages["carl"], "what the ranks said, in a case learners see"
    answer = Answer("ring_all_reduce", source=BARRIER, file="a.py")
    head, story, hint = str(verdict_on(find("ring_all_reduce"), answer)).split("\n\n")
    assert (
        hint in pages["carl"]
        and hint in json.loads((out / "results" / "carl.json").read_text())["tests"][2]["output"]
    )
    assert story.splitlines()[0] in pages["carl"]
    assert "should have" in story and "should have" in pages["carl"]
    assert "  core     0   failed" in head and "core     0   failed" in pages["carl"]
    oral = (out / "oral" / "anna.md").read_text()
    assert oral.count("\n   - ") == 9, "three questions an exercise, with what the trace says"
    assert "ring_all_reduce.py, line" in oral or "ring_reduce_scatter.py, line" in oral
    records = {
        n: json.loads((out / "work" / n / "records" / "ring_all_reduce.json").read_text())
        for n in ("anna", "bert")
    }
    assert [r["earlier_answers"] for r in records.values()] == ["own", "reference"]


@slow
def test_nothing_is_judged_twice_and_the_time_of_submission_stays(
    graded: tuple[Path, list[str]], tmp_path: Path, capsys, monkeypatch
) -> None:
    """Another policy, other points in the manifest, files copied since then, and a roster that
    knows of two of the three. Where nothing is judged, nothing is started that could."""
    monkeypatch.setattr(grade, "RankServer", nullcontext)
    out, command = graded
    first = table(out)
    logs = {p: p.stat().st_mtime_ns for p in out.rglob("nbval.xml")}
    for file in Path(command[1]).glob("*.ipynb"):
        os.utime(file, (0, 0))
    due = datetime.fromisoformat(first["anna"]["submitted"]) - timedelta(hours=30)
    policy = written(
        tmp_path / "policy.toml", POLICY + f"[late]\ndue = {due.isoformat()}\nper_day = 0.2\n"
    )
    roster = written(
        tmp_path / "roster.csv",
        f"id,submission,due\n1,anna,\n2,bert,{(due + timedelta(hours=24)).isoformat()}\n",
    )
    release = json.loads(Path("notebooks/manifest.json").read_text())
    release["lessons"]["04_small"]["exercises"][-1]["points"] = 30
    more = written(tmp_path / "manifest.json", release)
    asked = {"policy": policy, "roster": roster, "manifest": more}
    assert main([*command, *(f"--{name}={file}" for name, file in asked.items())]) == 0
    said = capsys.readouterr().out
    assert said.count("graded before") == 3 and "24 of 30 (late: −40%)" in said
    assert logs == {p: p.stat().st_mtime_ns for p in out.rglob("nbval.xml")}
    rows = table(out)
    assert [r["submitted"] for r in rows.values()] == [r["submitted"] for r in first.values()]
    assert [(r["student"], r["late"], r["points"]) for r in rows.values()] == [
        ("1", "0.4", "24"),
        ("2", "0.2", "24"),
        ("", "0.4", "0"),
    ]


@slow
def test_one_exercise_is_judged_again_and_no_other(
    graded: tuple[Path, list[str]], capsys, monkeypatch
) -> None:
    out, command = graded
    assert main([*command, "--exercise", "nothing"]) == 2
    monkeypatch.setattr(grade, "code_digest", lambda folders: "a check that was mended")
    capsys.readouterr()
    assert main([*command, "--exercise", "ring_all_gather"]) == 0
    assert capsys.readouterr().out.count("graded before") == 2, "bert and carl have no answer to it"
    assert [name for name in ran(out, "anna") if "check" in name] == ["ring_all_gather-check"]
    assert table(out)["anna"]["points"] == "20"


def test_of_a_grading_that_was_killed_no_record_is_left_that_says_so_of_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranks end with it, and the kernel that judged them lives a second longer."""
    lost = {"passed": False, "points": 0, "diagnosis": "01.exits", "reason": ""}
    lost |= {"seconds": 0.1, "undefended": {}}
    settings = {"context": [], "limits": {"play_seconds": 1}, "pictures": False}
    settings |= dict.fromkeys(("records", "verdicts"), str(tmp_path))
    settings |= dict.fromkeys(("code", "secret", "by"), "")
    monkeypatch.setattr(grade.grading_notebook, "_settings", settings)
    monkeypatch.setattr(
        grade.grading_notebook, "_answers", {"my_share": "def my_share(n): return n"}
    )
    monkeypatch.setattr(grade.grading_notebook, "_judged", lambda *_: lost)
    monkeypatch.setenv("COURSE_GRADE_DOOR", "nobody-answers-here")
    with pytest.raises(ConnectionRefusedError):
        grade.grading_notebook.grade("my_share")
    assert list(tmp_path.iterdir()) == []


def test_names_tell_submissions_apart_and_never_lead_out_of_the_folder(tmp_path: Path) -> None:
    stems = ["..", "", "a b", "a_b", "A_b", "x" * 240, "x" * 239 + "y", "é" * 120]
    files = [f"{stem}.ipynb" for stem in (*stems, "anna/1/2/3/hw", "bert/1/2/3/hw")]
    for name in files:
        written(tmp_path / name, "{}")
    beside = (".ipynb_checkpoints/hw", "map", "backup/hw.2026-09-01-101500-000123")
    for name in beside:  # what JupyterLab and the course have put there
        written(tmp_path / "bert" / f"{name}.ipynb", "{}")
    names = [n for n, _ in grade.named([str(tmp_path)])]
    assert {"anna__1__2__3__hw", "bert__1__2__3__hw"} < set(names)
    assert len({n.casefold() for n in names}) == len(files)
    assert all(not n.startswith(".") and "/" not in n and len(n.encode()) < 140 for n in names)
    (tmp_path / "inbox").symlink_to(tmp_path / "anna")
    with pytest.raises(LessonError, match="is a link"):
        list(grade.named([str(tmp_path / "inbox")]))


# ---------------------------------------------------------------------------------- marks, manifest

LEVELS = {
    "core": {"state": "passed", "points": 60, "diagnosis": None},
    "budget": {"state": "failed", "points": 0, "diagnosis": "01.twice"},
    "sturdy": {"state": "passed", "points": 10, "diagnosis": None},
}


RELEASE = manifest.Manifest(
    "1",
    {
        "01_x": [
            manifest.Item(
                "e", "01.1", 20, True, {"core": 60, "budget": 30, "sturdy": 10}, "a", "c", ""
            )
        ]
    },
)
DUE = datetime(2026, 3, 1, 12, tzinfo=UTC)


def marked(
    tmp_path: Path, policy: Policy, required: bool = True, late: float = 0.0, levels: dict = LEVELS
) -> marks.Marked:
    item = replace(RELEASE.lessons["01_x"][0], required=required)
    release = replace(RELEASE, lessons={"01_x": [item]})
    told = ["e\n  core 60\n  budget 0\n  sturdy 10", "the case", "e.id: hint"]
    written(
        tmp_path / "e.json",
        {
            "levels": levels,
            "passed": False,
            "written": True,
            "hint": "hint",
            "told": told,
            "pictures": ["x"],
        },
    )
    submission = Submission("01_x", {"e": Found("e", "def e(): pass")})
    return marks.mark("x", submission, release, policy, tmp_path, late=late)


@pytest.mark.parametrize(
    ("policy", "required", "points", "worth"),
    [
        (Policy(), True, 14, 20),
        (Policy(), False, 14, 0),
        (Policy(optional="full"), False, 14, 20),
        (Policy(optional="bonus"), False, 14, 0),
        (Policy(optional="none"), False, 0, 0),
        (Policy(points={"e": 10}), True, 7, 10),
        (Policy(optional="none"), True, 14, 20),
    ],
)
def test_marks_are_those_of_manifest_and_policy(
    policy: Policy, required: bool, points: float, worth: float, tmp_path: Path
) -> None:
    got = marked(tmp_path, policy, required)
    assert (got.points, got.worth) == (points, worth)


def test_what_the_machine_could_not_judge_is_nobodys_zero(tmp_path: Path) -> None:
    """In none of the files that carry marks."""
    answered = Submission("01_x", {"e": Found("e", "x")})
    lost = marks.mark("x", answered, RELEASE, Policy(), tmp_path, "no verdict")
    written(tmp_path / "e.json", {"not_judged": "OSError: too many files"})
    told = marks.mark("y", answered, RELEASE, Policy(), tmp_path)
    broken = marks.Marked("z", "", [], problem="grief", trouble="grief")
    given = [replace(one, student=Student(one.name)) for one in (lost, told, broken)]
    exports.write_all(tmp_path / "out", given)
    rows = table(tmp_path / "out")
    assert {(r["status"], r["points"]) for r in rows.values()} == {("not judged", "")}
    assert [r["e"] for r in rows.values()] == ["", "", ""]
    assert [r["problem"] for r in rows.values()] == [
        "no verdict",
        "e: OSError: too many files",
        "grief",
    ]
    for name in ("canvas", "moodle"):
        text = (tmp_path / "out" / f"{name}.csv").read_text().splitlines()
        assert all(line.endswith(",") for line in text if line.startswith(("x", "y", ",,x")))
    suites = xml.parse(tmp_path / "out" / "junit.xml").getroot()
    assert [(s.get("errors"), s.get("failures")) for s in suites] == [("1", "0")] * 3
    assert "3 not judged, by no fault of theirs: x, y, z" in exports.summary(given)
    assert "none; mean" not in exports.summary(given)
    for one in given:
        page = unescape(feedback.page(one, RELEASE))
        assert "no fault of yours" in page and "0 of" not in page
        assert "score" not in json.loads(feedback.gradescope(one))


@slow
def test_where_nothing_can_be_judged_all_of_it_is_asked_again(
    course: Path, tmp_path: Path, ranks: RankServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """First no notebook runs, then no rank can be had, then all is well."""
    written(tmp_path / "inbox" / "a.ipynb", ring_notebook(ring_all_reduce=BARRIER))
    command = ["grade", str(tmp_path / "inbox"), "--out", str(tmp_path / "out")]
    gone = SimpleNamespace(address="nobody-answers-here")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(course)
        patch.setattr(grade, "RankServer", lambda: nullcontext(gone))
        for python, problem in (
            (shutil.which("true"), "no verdict about ring_all_reduce: see nbval.log"),
            (sys.executable, "ConnectionRefusedError"),
        ):
            patch.setattr(grade.sys, "executable", python)
            assert main(command) == 1
            assert "graded before" not in capsys.readouterr().out
            row = table(tmp_path / "out")["a"]
            assert (row["status"], row["points"], row["ring_all_reduce"]) == ("not judged", "", "")
            assert problem in row["problem"]
        patch.setattr(grade, "RankServer", lambda: nullcontext(ranks))
        assert main(command) == 0
    row = table(tmp_path / "out")["a"]
    assert (row["status"], row["points"]) == ("graded", "0")
    assert row["ring_all_reduce diagnosis"]


@pytest.mark.parametrize(
    ("hours", "late"), [(-1, 0), (0, 0), (0.1, 0.1), (24, 0.1), (25, 0.2), (1000, 0.5)]
)
def test_lateness_costs_by_the_day_up_to_its_cap(hours: float, late: float, tmp_path: Path) -> None:
    policy = Policy(due=DUE, per_day=0.1, at_most=0.5)
    assert policy.lateness(DUE + timedelta(hours=hours)) == pytest.approx(late)
    assert marked(tmp_path, policy, late=late).points == pytest.approx(14 * (1 - late))


@pytest.mark.parametrize("late", [0.0, 0.25])
@pytest.mark.parametrize("states", list(itertools.product(["passed", "failed"], repeat=3)))
def test_what_is_shown_before_the_due_date_is_never_more_than_what_is_given(
    states: tuple[str, ...], late: float, tmp_path: Path
) -> None:
    levels = {
        k: {"state": s, "points": 1, "worth": 1, "diagnosis": "d"}
        for k, s in zip(("core", "budget", "sturdy"), states, strict=True)
    }
    given = marked(tmp_path, Policy(), late=late, levels=levels)
    order = ("core", *SHOWS)
    for before, after in itertools.product(order, SHOWS):
        if order.index(before) <= order.index(after):
            policy = Policy(due=DUE, before_due=before, after_due=after)
            first = marks.seen(given, policy, DUE - timedelta(hours=1))
            then = marks.seen(given, policy, DUE)
            assert (first.points <= given.points and first.points <= then.points) or (
                not then.has_points
            )
            facts = [
                {f"{m.exercise} {k}" for m in copy.marks for k, v in m.record.items() if v}
                for copy in (first, then)
            ]
            assert before == "core" or facts[0] <= facts[1]


@pytest.mark.parametrize(
    ("shows", "present", "absent"),
    [
        ("all", ["the case", "e.id: hint", "14 of 20 (70%)"], []),
        ("diagnosis", ["e.id: hint", "sturdy 10", "14 of 20"], ["the case", "base64"]),
        ("marks", ["14 of 20", "budget   0   failed"], ["hint", "the case", "budget 0", "twice"]),
        ("passed", ["not passed"], ["14", "20", "hint"]),
        ("nothing", ["come after the due date"], ["14", "01.1", "passed"]),
        ("core", ["12 of 20 (60%) so far"], ["hint", "the case", "budget 0", "14"]),
    ],
)
def test_feedback_shows_what_the_policy_says(shows, present, absent, tmp_path: Path) -> None:
    given = marked(tmp_path, Policy(), levels=LEVELS)
    given.marks[0].record["pictures"] = [{"png": "", "words": ""}]
    copy = marks.seen(given, Policy(due=DUE, before_due=shows), DUE - timedelta(hours=1))
    texts = re.sub("<style>.*</style>", "", feedback.page(copy, RELEASE), flags=re.DOTALL)
    for text in (texts, feedback.gradescope(copy)):
        assert not [word for word in absent if word in text]
    assert not [word for word in present if word not in texts]
    assert ("Still open: 01.1 e" in texts) == (shows not in ("nothing", "core"))
    assert json.loads(feedback.gradescope(copy))["score"] <= given.points


def test_feedback_says_whose_it_is_of_which_lesson_and_what_comes_next(tmp_path: Path) -> None:
    release = replace(RELEASE, lessons={"02_y_z": [], **RELEASE.lessons})
    given = replace(marked(tmp_path, Policy()), student=Student("1", name="Jane Doe"))
    given = replace(given, submitted=DUE)
    given.marks[0].record["pictures"] = []
    page = feedback.page(given, release)
    assert "<h1>Lesson 01, x: 14 of 20 (70%)</h1>" in page
    assert "<p>Jane Doe, handed in on 01 March 2026, release 1 of the course</p>" in page
    assert "Still open: 01.1 e" in page and "comes next" not in page
    given.marks[0].record["passed"] = True
    page = feedback.page(given, release)
    assert "well done" in page and "Lesson 02, y z, comes next" in page
    assert "comes next" not in feedback.page(given, RELEASE), "there is none"


def test_the_summary_says_how_many_and_why() -> None:
    def one(name: str, points: float, **more: str) -> marks.Marked:
        mark = marks.Mark("e", "01.1", "c", 10, "full", {"core": points}, **more)
        return marks.Marked(name, "01_x", [mark], student=Student(name))

    bad = [marks.Marked(f"bad{n}", "", [], problem="not a notebook") for n in range(12)]
    bad[0] = replace(bad[0], student=Student("x"))
    text = exports.summary([one("a", 10), one("b", 0, reason="not written yet"), one("c", 6), *bad])
    assert "15 submissions: 1 full, 1 in part, 1 none; mean 53%" in text
    assert "11 of nobody in the roster: bad1, " in text
    assert "12 not gradable: bad0" in text and "and 2 more" in text
    assert re.search(
        r"01\.1 e +1 full, 1 in part, 1 none; mean 53%\n +2 × not p.*\n +1 × not w", text
    )


def test_canvas_and_moodle_find_students_by_the_roster(tmp_path: Path) -> None:
    """Canvas wants Student, ID, SIS ids and Section before the assignments; Moodle maps by name."""
    roster = read_roster(
        written(
            tmp_path / "roster.csv",
            "id,submission,name,email,section,submitted\n"
            '7,jdoe,"Doe, Jane",j@x.edu,A,\n'
            "8,,=1+1,k@x.edu,B,2026-03-01T20:00:00+01:00\n",
        )
    )
    found = [whose(name, roster) for name in ("jdoe__hw", "hw_jdoe_2", "8", "nobody", "8__jdoe")]
    assert [s and s.id for s in found] == ["7", "7", "8", None, "7"]
    assert whose("anna", None) == Student("anna")
    one = marked(tmp_path, Policy())
    results = [
        replace(one, name=name, student=whose(name, roster), submitted=time, marks=given)
        for name, time, given in (
            ("jdoe__2", DUE + timedelta(hours=1), []),
            ("jdoe__1", DUE, one.marks),
            ("8", DUE, one.marks),
        )
    ]
    exports.write_all(tmp_path / "out", results)
    assert (tmp_path / "out" / "canvas.csv").read_text() == (
        "Student,ID,SIS User ID,SIS Login ID,Section,01_x\n    Points Possible,,,,,20\n"
        '"Doe, Jane",,7,,A,0\n\'=1+1,,8,,B,14\n'
    )
    assert (tmp_path / "out" / "moodle.csv").read_text() == (
        "ID number,Email address,01_x\n7,j@x.edu,0\n8,k@x.edu,14\n"
    )


@pytest.mark.skipif(not shutil.which("nbgrader"), reason="no nbgrader on PATH to import marks")
def test_nbgraders_gradebook_takes_the_marks(tmp_path: Path) -> None:
    """Its own export then says what ours does: of two submissions of one student, the last."""
    one = replace(marked(tmp_path, Policy()), student=Student("jane"), submitted=DUE)
    none = replace(one, submitted=DUE - timedelta(days=1), marks=[replace(one.marks[0], earned={})])
    exports.write_all(tmp_path, [one, none, replace(none, student=Student("joe"))])
    nbgrader, book = Path(str(shutil.which("nbgrader"))), f"sqlite:///{tmp_path / 'gradebook.db'}"
    environment = {"PATH": f"{nbgrader.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    for command in (
        *[["python", str(ROOT / "tools/to_nbgrader.py"), str(tmp_path / "grades.csv"), book]] * 2,
        ["nbgrader", "export", "--db", book, "--to", str(tmp_path / "export.csv")],
    ):
        subprocess.run(
            [nbgrader.parent / command[0], *command[1:]],
            check=True,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
        )
    rows = list(csv.DictReader((tmp_path / "export.csv").open()))
    assert [(r["assignment"], r["student_id"], r["score"], r["max_score"]) for r in rows] == [
        ("01_x", "jane", "14.0", "20.0"),
        ("01_x", "joe", "0.0", "20.0"),
    ]


@pytest.mark.parametrize(
    ("text", "said"), [("name\nx", "line 2.*id"), ("id,due\n1,soon", "line 2.*soon")]
)
def test_a_roster_that_cannot_be_followed_is_one_line(text, said, tmp_path: Path) -> None:
    with pytest.raises(LessonError, match=said):
        read_roster(written(tmp_path / "roster.csv", text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[marks]\noptional = 'maybe'", r"marks.optional: 'maybe' is not one of \['full'"),
        ("[limits]\nmemory = 3", "limits: .*'memory' was unexpected"),
        ("[limits]\nmemory_mb = -3", "memory_mb"),
        ("[limits]\nmemory_mb = '3'", "memory_mb"),
        ("[what]\nx = 1", "'what' was unexpected"),
        ("[late]\ndue = 2026-03-01", "late.due: .* does not match"),
        ("[feedback]\nbefore_due = 'all'\nafter_due = 'marks'", "cannot be taken back"),
        ("[marks", "policy.toml"),
        ("[marks]\npoints = { a = -1 }", "points"),
    ],
)
def test_a_policy_that_cannot_be_followed_is_one_line(text, said, tmp_path, capsys) -> None:
    path = written(tmp_path / "policy.toml", text)
    inbox = written(tmp_path / "submission.ipynb", "{}")
    code_ = main(["grade", str(inbox), "--out", str(tmp_path / "out"), "--policy", str(path)])
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
    player = CarriedPlayer(None, Limits(), set())
    verdict = verdict_on(find("exchange"), Answer("exchange", source=source, file="a.py"), player)
    assert not (tmp_path / "escaped").exists() and not verdict.passed and not verdict.points
