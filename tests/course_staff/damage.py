"""Notebooks as they come in: copied, moved, retyped, cut short, saved by other programs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zoo

ROOT = Path(__file__).resolve().parents[2]
Notebook = dict[str, Any]


def _is_answer(cell: Any) -> bool:
    return isinstance(cell, dict) and str(cell.get("id")).endswith("-answer")


def _place(nb: Notebook) -> int:
    """The notebook's first answer: the one that something happens to."""
    return next(n for n, c in enumerate(nb["cells"]) if _is_answer(c))


def shuffled(nb: Notebook, rng: random.Random) -> None:
    rng.shuffle(nb["cells"])


def without_ids(nb: Notebook, rng: random.Random) -> None:
    for cell in nb["cells"]:
        cell.pop("id", None)
    nb["nbformat_minor"] = 4


def without_metadata(nb: Notebook, rng: random.Random) -> None:
    for cell in nb["cells"]:
        cell["metadata"] = {}


def retyped(nb: Notebook, rng: random.Random) -> None:
    cell = nb["cells"].pop(_place(nb))
    nb["cells"].append(
        {
            "cell_type": "code",
            "source": cell["source"],
            "metadata": {},
            "outputs": [],
            "id": f"x{rng.randrange(10**6)}",
        }
    )


def copied(nb: Notebook, rng: random.Random) -> None:
    cell = dict(nb["cells"][_place(nb)], id=f"x{rng.randrange(10**6)}")
    nb["cells"].insert(rng.randrange(len(nb["cells"]) + 1), cell)


def others_deleted(nb: Notebook, rng: random.Random) -> None:
    nb["cells"] = [c for c in nb["cells"] if _is_answer(c) or rng.random() < 0.4]


def with_rubbish_cells(nb: Notebook, rng: random.Random) -> None:
    for rubbish in (None, 3, "cell", [], {}, {"cell_type": None, "source": None, "metadata": None}):
        nb["cells"].insert(rng.randrange(len(nb["cells"]) + 1), rubbish)


def with_foreign_metadata(nb: Notebook, rng: random.Random) -> None:
    nb["metadata"] = {"course": [1], "kernelspec": 3, "colab": {"name": "x"}}


def emptied(nb: Notebook, rng: random.Random) -> None:
    nb["cells"][_place(nb)]["source"] = rng.choice([[], "", None, 7, {"a": 1}])


def deleted(nb: Notebook, rng: random.Random) -> None:
    nb["cells"].pop(_place(nb))


def with_broken_code(nb: Notebook, rng: random.Random) -> None:
    text = "".join(nb["cells"][_place(nb)]["source"])
    at = rng.randrange(len(text))
    nb["cells"][_place(nb)]["source"] = text[:at] + rng.choice("([{\\'\"\x00") + text[at:]


KEEPS: list[Callable[[Notebook, random.Random], None]] = [
    shuffled,
    copied,
    without_metadata,
    others_deleted,
    with_foreign_metadata,
    with_rubbish_cells,
    retyped,
    without_ids,
]
LAST = (without_metadata, with_rubbish_cells, retyped, without_ids)  # what others look for is gone
LOSES = [emptied, deleted, with_broken_code]


def damaged(seed: int) -> tuple[str, str]:
    """A solved notebook's text after one or two misfortunes, and its answer, if it is still in."""
    rng, answer = random.Random(seed), zoo.source("my_share", "by_divmod")
    nb = json.loads((ROOT / "notebooks" / "00_hello_ranks.ipynb").read_text())
    nb["cells"][_place(nb)]["source"] = answer.splitlines(True)
    how = rng.random()
    if how < 0.6:
        first, then = rng.choice([k for k in KEEPS if k not in LAST]), rng.choice(KEEPS)
        first(nb, rng)
        then(nb, rng)
        return json.dumps(nb), answer
    if how < 0.85:
        rng.choice(LOSES)(nb, rng)
        return json.dumps(nb), ""
    text = json.dumps(nb)
    at = rng.randrange(len(text))
    return rng.choice([text[:at], text[:at] + "\x00" + text[at + 9 :], text[at:], ""]), ""
