"""Saves that are killed: lives of an answer, the points at which they end, and what is left."""

from __future__ import annotations

import os

import pytest
import torch
import zoo

from course_exercises.drivers import lives
from course_exercises.drivers.deaths import Saves
from course_lib import run

SAVES = zoo.right("Checkpoint")["solution"]


def loaded(source: str) -> type:
    space: dict = {}
    exec(source, space)
    return space["Checkpoint"]


def told(source: str, stories: list[str], places: list[str]) -> list[dict]:
    lives.start(lambda: loaded(source), places)
    states = [{"weight": torch.full((900,), float(k)), "step": k} for k in range(4)]
    out = []
    for story in stories:
        saves = Saves(story, states)
        saves.use(object)
        out.append(saves.noted)
    return out


def play(source: str, *stories: str) -> list[dict]:
    with lives.folders() as places:
        how = {"world_size": 1, "init": False, "record": False}
        facts = run(told, source, list(stories), places, **how).results[0]  # type: ignore[arg-type]
    assert not any(map(os.path.exists, places)), "files are left behind"
    return facts


@pytest.mark.slow
def test_a_save_is_killed_at_every_step_of_its_and_between_its_bytes():
    later, first = play(SAVES, "a death in a later save", "a death in the first save")
    assert later["events"] == ["opens another file to write", "renames another file to state.pt"]
    when = [death["when"] for death in later["deaths"]]
    assert when[0] == "before it opens another file to write"
    assert when[-1] == "before it renames another file to state.pt"
    assert len(when) == 5 and all("has written" in one for one in when[1:-1])
    assert {(d["once"], d["twice"], d["end"]) for d in later["deaths"]} == {
        ("state 0", "state 0", "state 3")
    }
    assert {d["once"] for d in first["deaths"]} == {"None"}


@pytest.mark.slow
def test_what_is_synced_as_it_is_written_is_seen():
    """By whoever opens the file so, and never calls fsync."""
    opened = '"wb", opener=lambda p, flags: os.open(p, flags | os.O_DSYNC, 0o644)'
    source = SAVES.replace("            os.fsync(file.fileno())\n", "").replace(
        'unfinished, "wb"', f"unfinished, {opened}"
    )
    assert "O_DSYNC" in source and "os.fsync" not in source
    assert play(source, "a look at the disk") == [{"files": 1, "unsynced": 0}]


@pytest.mark.slow
def test_a_life_that_hangs_is_ended():
    sleeps = SAVES.replace("os.replace(", "import time; time.sleep(15); os.replace(")
    [facts] = play(sleeps, "a look at the disk")
    assert facts == {"error": lives.HANGS}
