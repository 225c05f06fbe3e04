"""Ids of cells: given once, written into the source, kept through every edit.

A cell of a source starts with a header line:

    # %% [markdown] id="00-3fa9c1"
    # %% id="00-77b2d0"
    # %% exercise="my_share" role="answer" points=10 required=true difficulty=1

An author writes no id. ``build`` adds one to the headers that lack it; from then on the cell keeps
it, wherever it moves and whatever becomes of its text. Cells of an exercise need none: theirs is
the exercise and the role. Learners' answers, marks and links all hang on these ids.
"""

from __future__ import annotations

import hashlib
import re

HEADER = re.compile(r"^# %%(?P<rest>(?:\s.*)?)$")
_ID = re.compile(r'\bid="(?P<id>[^"]*)"')
_EXERCISE = re.compile(r'\bexercise="')


def header_lines(text: str) -> list[int]:
    """Numbers, from 1, of the lines that start a cell."""
    return [n for n, line in enumerate(text.splitlines(), 1) if HEADER.match(line)]


def with_ids(text: str, lesson: str) -> str:
    """``text`` with an id in every header that needs one; the other lines stay as they are.

    The new id is a hash of the cell's first text: two people who build the same new cell give it
    the same id.
    """
    lines = text.splitlines(keepends=True)
    starts = [number - 1 for number in header_lines(text)]
    used = {match["id"] for start in starts if (match := _ID.search(lines[start]))}
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        header = lines[start].rstrip()
        if _ID.search(header) or _EXERCISE.search(header):
            continue
        new = _fresh(lesson, "".join(lines[start:end]).rstrip(), used)
        used.add(new)
        lines[start] = f'{header} id="{new}"\n'
    return "".join(lines)


def _fresh(lesson: str, body: str, used: set[str]) -> str:
    attempt = 0
    while True:
        digest = hashlib.sha256(f"{lesson}\n{attempt}\n{body}".encode()).hexdigest()
        new = f"{lesson[:2]}-{digest[:6]}"
        if new not in used:
            return new
        attempt += 1
