"""Grading at length: the whole zoo by the judge, 30 and 200 submissions, 200 damaged notebooks.

COUNT=200 make soak SOAK_ARGS="-k grading"     as many submissions; 30 without COUNT
"""

from __future__ import annotations

import copy
import csv
import json
import os
import random
import re
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
sys.path.insert(0, str(TESTS / "grading"))

from damage import damaged  # noqa: E402

from course_lib.__main__ import main  # noqa: E402
from course_lib.checks.exercise import exercises  # noqa: E402
from course_lib.grading import answers, manifest  # noqa: E402
from course_lib.grading.judge import Order, Timing, judge  # noqa: E402
from course_lib.grading.walls import Limits  # noqa: E402
from course_lib.grading.zygote import Zygote  # noqa: E402

COUNT = int(os.environ.get("COUNT", "30"))
LESSON = ROOT / "notebooks" / "00_hello_ranks.ipynb"
ZOO = [p for kind in ("right_answers", "wrong_answers")
       for p in sorted((TESTS / kind).glob("*/*.py"))]  # fmt: skip


def with_answer(source: str) -> dict:
    notebook = json.loads(LESSON.read_text())
    for cell in notebook["cells"]:
        if cell["id"] == "my_share-answer":
            cell["source"] = source.splitlines(True)
    return notebook


def test_grading_the_zoo_gives_the_diagnoses_of_check() -> None:
    different = []
    with Zygote() as zygote:
        for path in ZOO:
            name, source = path.parent.name, path.read_text()
            if name not in exercises():
                continue
            record = judge(Order(name, source, [], []), zygote.address, Limits(), Timing(20, 300))
            stated = re.match(r'"""Diagnosis: (\S+)', source)
            wanted = stated[1] if stated and "wrong_answers" in path.parts else None
            if record["diagnosis"] != wanted:
                different.append(f"{name}/{path.stem}: {record['diagnosis']}, not {wanted}")
    assert not different


def test_grading_submissions_gives_the_marks_that_were_predicted(tmp_path: Path) -> None:
    mine = [p for p in ZOO if p.parent.name == "my_share"]
    inbox, wanted = tmp_path / "inbox", {}
    inbox.mkdir()
    for number in range(COUNT):
        path = mine[number % len(mine)]
        stated = re.match(r'"""Diagnosis: (\S+)', path.read_text())
        wrong = "wrong_answers" in path.parts
        (inbox / f"s{number:03}.ipynb").write_text(json.dumps(with_answer(path.read_text())))
        wanted[f"s{number:03}"] = stated[1] if wrong and stated else ""
    assert main(["grade", str(inbox), "--out", str(tmp_path / "out")]) == 0
    rows = list(csv.DictReader((tmp_path / "out" / "grades.csv").open()))
    assert {row["submission"]: row["my_share diagnosis"] for row in rows} == wanted
    for row in rows:
        assert (row["points"] == "10") == (wanted[row["submission"]] == "")


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_grading_damaged_notebooks_costs_an_answer_at_most_itself(
    start: int, tmp_path: Path
) -> None:
    release = manifest.read(ROOT / "notebooks" / "manifest.json")
    right = (TESTS / "right_answers" / "my_share" / "by_divmod.py").read_text()
    for seed in range(start, start + 50):
        text, keeps = damaged(copy.deepcopy(with_answer(right)), random.Random(1000 + seed))
        path = tmp_path / "00_hello_ranks.ipynb"
        path.write_text(text)
        got = answers.read(path, release)
        if keeps:
            assert got.answers["my_share"].source.rstrip() == right.rstrip(), seed
