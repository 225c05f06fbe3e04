"""Saves that are killed: lives of an answer, the points at which they end, and what is left."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import torch
import zoo

from course_exercises.drivers import deaths, lives
from course_exercises.drivers.deaths import STORIES, Saves
from course_lib import run

SAVES = zoo.right("Checkpoint")["solution"]
SLEEPS = SAVES.replace("os.replace(", "import time; time.sleep(60); os.replace(")


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
def test_other_stories_say_what_happened():
    disk, full, strange, others = play(SAVES, "a look at the disk", "a full disk", "strange files",
                                       "other files in the folder")  # fmt: skip
    assert disk == {"files": 1, "unsynced": 0}
    assert all(one["raised"] and one["found"] == "state 0" for one in full["full"])
    assert not any(one["found"] or one["ran"] for one in strange["strange"])
    met = {"mine": "state 1", "theirs": "state 2"}
    when = [f"before it {does}" for does in (
        "opens another file to write", "renames another file to state.pt")]  # fmt: skip
    assert others == {"whole": True,
                      "met": [{"when": one} | met for one in when]}  # fmt: skip
    late, *_ = play(SAVES.replace("os.fsync(file.fileno())", "pass"), "a look at the disk")
    assert late["unsynced"] == 1
    runs, *_ = play(SAVES.replace("weights_only=True", "weights_only=False"), "strange files")
    assert [one["when"] for one in runs["strange"] if one["ran"]] == ["somebody's pickle"]


@pytest.mark.slow
def test_two_checkpoints_that_write_one_unfinished_file_take_it_from_each_other():
    one_name = SAVES.replace('path + ".unfinished"', "os.path.splitext(path)[0] + '.tmp'")
    [facts] = play(one_name, "other files in the folder")
    assert facts["whole"]
    assert facts["met"][-1]["mine"] == "raises FileNotFoundError"


@pytest.mark.slow
def test_what_is_synced_by_another_way_is_seen():
    plain = "            file.flush()\n            os.fsync(file.fileno())\n"
    ways = [SAVES.replace(plain, "            file.flush()\n            os.sync()\n")]
    for flag in ("O_SYNC", "O_DSYNC"):
        opened = f'"wb", opener=lambda p, flags: os.open(p, flags | os.{flag}, 0o644)'
        ways.append(SAVES.replace(plain, "").replace('unfinished, "wb"', f"unfinished, {opened}"))
    for source in ways:
        assert source.count("os.fsync") == 0
        assert play(source, "a look at the disk") == [{"files": 1, "unsynced": 0}]
    too_early = ways[0].replace("            file.flush()\n            os.sync()\n", "").replace(
        "        with open", "        os.sync()\n        with open")  # fmt: skip
    assert play(too_early, "a look at the disk")[0]["unsynced"] == 1


@pytest.mark.slow
def test_a_life_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch):
    [facts] = play(SLEEPS.replace("60", "15"), "a look at the disk")
    assert facts == {"error": lives.HANGS}


def test_every_story_is_a_function_of_a_module():
    """So that it can be named to another process."""
    assert all(getattr(story, "func", story).__module__ == deaths.__name__
               for story in STORIES.values())  # fmt: skip
    assert Path(tempfile.gettempdir()) != lives.OTHER_DISK
