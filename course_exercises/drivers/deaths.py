"""Stories of saves that are killed, or fail: an argument for an answer that is a class which saves.

Each story is played by ``lives.py``, and is told as plain facts. What should have happened, nobody
knows here.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import Tensor

from course_check.harness.answer import NOT_WRITTEN
from course_check.harness.kept import snapshot
from course_check.harness.seen import Noted, leaves
from course_exercises.drivers import lives
from course_exercises.drivers.lives import Facts, Failed, Live, Point, Story

LIVES = lives.Lives()
HERE = "no death"
MOST_EVENTS = 12  # of one save at which it is killed
DOES = {"open": "opens {} to write", "rename": "renames {} to {}"}


@dataclass(repr=False, eq=False)
class Saves(Noted):
    """States that are saved, one after the other."""

    words = "states to save"
    story: str  # one of STORIES
    states: list[dict]

    def use(self, answer: Callable) -> None:
        if self.story == HERE:
            self.noted |= play_here(answer, self.states)
            return
        self.noted |= lives.play(STORIES[self.story], self.states)
        if NOT_WRITTEN in str(self.noted.get("error")):
            raise NotImplementedError(NOT_WRITTEN)


def play_here(answer: Callable, states: list[dict]) -> Facts:
    """Before any save, and after each one, when the job has changed its state: what another object
    loads, and what the one does that has saved."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.pt")
        try:
            first = lives.name_state(answer(path).load(), states)
        except FileNotFoundError as error:
            first = f"raises {type(error).__name__}"
        found, own = [], []
        for state in states:
            mine, one = snapshot(state), answer(path)
            one.save(mine)
            for _, leaf in leaves(mine):
                if isinstance(leaf, Tensor):
                    leaf.add_(1)
            found.append(lives.name_state(answer(path).load(), states))
            own.append(lives.name_state(one.load(), states))
    return {"first": first, "found": found, "own": own}


# ---- points --------------------------------------------------------------------------------------


def list_points(plain: Facts, size: int) -> Iterator[tuple[str, Point]]:
    """The points of a save that went well, the earliest first, each with words for it. A point in
    the middle of a file exists only if something is written after the event.
    """
    events = [["begins"], *plain["events"]][: MOST_EVENTS + 1]
    for number, (event, writes) in enumerate(zip(events, plain["writes"], strict=False)):
        words = say_event(*event)
        if number:
            yield f"before it {words}", (number, None)
        for most in (0, size // 2, size - 1) if writes else ():
            yield f"when it {words} and has written {most} bytes", (number, most)


def say_event(does: str, *names: str) -> str:
    said = [name if name == "state.pt" else "another file" for name in names]
    return DOES.get(does, f"{does}s {{}}" if names else does).format(*said)


def find_largest(path: Path) -> int:
    return max((p.stat().st_size for p in lives.list_files(path.parent).values()), default=1)


def restore(path: Path, kept: Path) -> None:
    """Make the folder again what it was when it was kept."""
    shutil.rmtree(path.parent)
    shutil.copytree(kept, path.parent, symlinks=True)


def keep(path: Path) -> Path:
    return Path(shutil.copytree(path.parent, f"{path.parent}.kept", symlinks=True))


# ---- stories -------------------------------------------------------------------------------------


def say_found(end: Facts, key: str = "found") -> str:
    """What a load found, or how it ended. Of an error only its class is told: its text may name a
    folder.
    """
    if key in end:
        return str(end[key])
    if "error" not in end:
        return "is killed"
    error = end["error"]
    return error if error == lives.HANGS else f"raises {error.partition(':')[0]}"


def save(live: Live, *numbers: int) -> Facts:
    """Save these states in this order; returns what the last life saw."""
    end: Facts = {}
    for number in numbers:
        end = live(save=number)
        if "done" not in end:
            raise Failed(say_found(end, "after"))
    return end


def play_deaths(before: bool, live: Live, path: Path) -> Facts:
    """A save is killed at every point, twice; then one is not."""
    if before:
        save(live, 0)
    kept = keep(path)
    plain = save(live, 1)
    deaths, events = [], [["begins", ""], *plain["events"]]
    for words, point in list_points(plain, find_largest(path)):
        restore(path, kept)
        live(save=1, point=point)
        once, end = live(save=2, point=point), live(save=3)
        half = point[1] is not None and events[point[0]][1] in once.get("reads", ())
        told = {"once": say_found(once), "twice": say_found(end), "end": say_found(end, "after")}
        deaths.append({"when": words, "half read": half} | told)
    grown = [say_event(*event) for event, more in zip(events, plain["writes"], strict=True) if more]
    return {"deaths": deaths, "events": [say_event(*e) for e in events[1:]], "grown": grown}


def look_at_disk(live: Live, path: Path) -> Facts:
    """What is synced, and how many files are there after saves that were killed and one that was
    not."""
    late = set[str]()
    for number in (0, 1):
        plain = save(live, number)
        late |= {*plain["unsynced"]} & {*(plain["reads"] or plain["unsynced"])}
    most = len([*path.parent.iterdir()])
    for _, point in list_points(plain, find_largest(path)):
        live(save=2, point=point)
    live(save=3)
    return {"files": max(most, len([*path.parent.iterdir()])), "unsynced": len(late)}


def fill_disk(live: Live, path: Path) -> Facts:
    """The disk is full at some byte of the second save, or cannot be written at all."""
    save(live, 0)
    kept, half, told = keep(path), find_largest(path) // 2, []
    bad: dict[str, dict[str, int]] = {
        "there is room for 0 bytes": {"room": 0},
        f"there is room for {half} bytes": {"room": half},
        "the folder is read-only": {"read_only": True},
    }
    for words, how in bad.items():
        restore(path, kept)
        end = live(save=1, **how)
        raised = "error" in end and "events" not in end
        told.append({"when": words, "raised": raised, "found": say_found(live())})
    return {"full": told}


def load_strange(live: Live, path: Path) -> Facts:
    """What is loaded is something else than what was saved."""
    save(live, 0, 1)
    kept, trace, told = keep(path), path.with_name("ran"), []
    for words, change in (
        ("cut in half", lambda data: data[: len(data) // 2]),
        ("empty", lambda data: b""),
        ("a text", lambda data: b"nothing of a checkpoint\n" * 40),
        ("somebody's pickle", lambda data: pickle.dumps(Opens(str(trace)))),
    ):
        restore(path, kept)
        for one in lives.list_files(path.parent).values():
            one.write_bytes(change(one.read_bytes()))
        end = live()
        told.append({"when": words, "found": end.get("found", ""), "ran": trace.exists()})
    return {"strange": told}


class Opens:
    """An object that writes a file when it is unpickled, and might do anything else."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return open, (self.path, "w")


def save_beside(live: Live, path: Path) -> Facts:
    """Other files lie in the folder, some named as the answer names its own; and a checkpoint whose
    name differs in its ending alone is saved in the middle of a save."""
    other = path.with_suffix(".1")
    save(partial(live, path=other), 0)
    events = save(live, 0)["events"]
    names = {Path(name).suffix for _, *names in events for name in names}
    notes = [path.with_name(f"notes{s}") for s in names | {".txt"}] + [Path(f"{path}.notes")]
    for one in notes:
        one.write_text("not a checkpoint")
    save(live, 1)
    whole = all(n.exists() and n.read_text() == "not a checkpoint" for n in notes)
    met = []
    for number, event in enumerate(events[:MOST_EVENTS], 1):
        mine = say_found(live(save=1, point=(number, None), neighbour=other), "after")
        theirs = say_found(live(path=other))
        met.append({"when": f"before it {say_event(*event)}", "mine": mine, "theirs": theirs})
    return {"whole": whole, "met": met}


STORIES: dict[str, Story] = {
    "a death in the first save": partial(play_deaths, False),
    "a death in a later save": partial(play_deaths, True),
    "a look at the disk": look_at_disk,
    "a full disk": fill_disk,
    "strange files": load_strange,
    "other files in the folder": save_beside,
}
