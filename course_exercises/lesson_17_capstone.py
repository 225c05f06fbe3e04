"""Lesson 17: what a plan costs. What is right was recorded, of skeletons and layers at true size.

``tools/record_plans.py`` makes the table, with what each mistake would give; nothing here computes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from course_check.cases import Case
from course_check.exercise import Finding, Play
from course_check.rules import without_a_word
from course_check.usual_diagnoses import found
from course_exercises.declare import exercise, marked

Facts = dict[str, Any]
TENSOR, REPLICAS, STAGES = "tensor parallelism", "several replicas", "several stages"
AGAIN, ACROSS = "checkpointing", "more GPUs than a node has"
WORDS: dict[str, str | None] = {
    TENSOR: "tp is more than 1. What does it divide, and how often do its ranks talk?",
    REPLICAS: "dp is more than 1. What is averaged, how large is it on this rank, and which work "
    "hides it?",
    STAGES: "pp is more than 1. How many layers has a stage, and how many micro-batches have to "
    "pass before the last one is through?",
    AGAIN: "activations are checkpointed. What is kept, and what is computed once more?",
    ACROSS: "the plan needs several nodes. Which ranks are in a group, and is one of them on "
    "another node?",
}


@cache
def table() -> dict[str, list[Facts]]:
    return json.loads(Path(__file__).with_suffix(".json").read_text())


def recorded(given: list[tuple], of: str = "steps", mistake: str = "", way: int = 0) -> list[float]:
    """What was measured of this plan; or what would have been, of a program with a mistake."""
    [args] = given
    [entry] = (entry for entry in table()[of] if (*entry["given"].values(),) == args)
    return [float(entry["wrong"][mistake][way] if mistake else entry["right"])]


def mistakes(of: str, names: Sequence[str]) -> dict[str, list[Facts]]:
    """By the mistake's name the ways in which it was recorded."""
    ways = {name: range(len(found)) for name, found in table()[of][0]["wrong"].items()}
    return {n: [{"of": of, "mistake": n, "way": way} for way in ways[n]] for n in names}


def case(entry: Facts) -> Case:
    return Case(1, options=entry["given"])


def special(case: Case) -> set[str]:
    """What the plan does beyond computing on one GPU."""
    plan, cluster = case.options["plan"], case.options.get("cluster")
    n = plan["dp"] * plan["tp"] * plan["pp"]
    return marked(
        {
            TENSOR: plan["tp"] > 1,
            REPLICAS: plan["dp"] > 1,
            STAGES: plan["pp"] > 1,
            AGAIN: plan["checkpoint"],
            ACROSS: cluster is not None and n > cluster["gpus"],
        }
    )


planned = partial(
    exercise,
    inputs=lambda case, rank: (*case.options.values(),),
    in_ranks=False,
    rules=[without_a_word],
    special=special,
    words=WORDS,
)

# ---- 17.1 step_seconds ---------------------------------------------------------------------------

HINTS = {
    "units": "Seconds are asked for, not milliseconds or microseconds.",
    "backward-once": "The backward of a layer has twice the FLOPs of its forward.",
    "not-again": "With checkpointing a layer's whole forward comes once more before its backward, "
    "and tp's calls belong to it.",
    "m": "A replica has batch/dp sequences in m micro-batches. Where does the number of "
    "micro-batches count, and where does their size?",
    "bubble": "All m micro-batches pass through pp stages. When the last one is through, "
    "how many times has a stage's time for one micro-batch gone by?",
    "once-a-layer": "With tp a layer has two all_reduces in forward, and two in backward.",
    "tp-is-silent": "tp's all_reduces are missing. Nothing hides them.",
    "tp-computes-all": "Each of tp ranks computes a part of every layer, not all of it.",
    "whole-gradients": "A rank averages the gradients of what it holds: of its stage's layers, and "
    "of its part of each.",
    "not-hidden": "The all_reduces of gradients wait until the backward has ended. When could the "
    "first begin?",
    "all-hidden": "Averaging gradients takes no time here. Which all_reduce has no backward left "
    "that could hide it?",
    "every-micro-batch": "Gradients are averaged for each micro-batch. Once in a step is enough.",
    "no-hops": "The hops between stages are missing, or those of one direction are. There are "
    "hops in forward and in backward, and nothing hides them.",
    "network": "Ranks of one node talk over its own links. Which groups lie inside a node?",
    "inside": "Not all ranks are on one node. Which groups and which hops lead from node to node?",
    "tp-across": "The ranks of a tp group are neighbours. How far apart are the numbers of two "
    "ranks of a tp group, and of a dp group?",
    "half-an-all-reduce": "An all_reduce sends about twice its bytes: it reduces, and gathers.",
    "attention": "Attention's products are missing: 4·t·T·D more for t tokens.",
    "float32": "A number of activations and gradients has 2 bytes.",
}

planned(
    "17.1 step_seconds",
    recorded,
    core=lambda rng: [*map(case, table()["steps"][:-3])],
    sturdy=lambda rng: [*map(case, table()["steps"][-3:])],
    tolerance=0.02,
    hints=HINTS,
    mistakes=mistakes("steps", [*HINTS]),
)

# ---- 17.2 memory_bytes ---------------------------------------------------------------------------

WORDS_OF_BYTES = {
    TENSOR: "tp is more than 1. What does it divide, and what does each of its ranks hold whole?",
    REPLICAS: "dp is more than 1. What does this stage of ZeRO divide, and what does it repeat?",
    STAGES: "pp is more than 1. How many layers has a stage, and how many micro-batches are alive?",
}
BYTES = {
    "units": "Bytes are asked for, not GB or GiB.",
    "float32": "Weights, gradients and activations have 2 bytes a number; the states alone have 4.",
    "master": "States are three numbers of 4 bytes for each weight: a copy of it, and Adam's two.",
    "zero": "From stage 1 on the states are divided by dp, from stage 2 on the gradients too.",
    "whole-model": "The first stage has layers/pp of the layers.",
    "m": "A micro-batch has batch/(dp·m) sequences.",
    "order": "In GPipe all m micro-batches are alive at once; in 1F1B at most pp are.",
    "one-alive": "Several micro-batches are alive at once. How many in each schedule?",
    "always-pp": "No more micro-batches can be alive than there are.",
    "not-again": "With checkpointing of each layer only the input is kept.",
    "keeps-nothing": "With checkpointing the input of every layer stays, of all micro-batches that "
    "are alive.",
    "one-more": "While a checkpointed layer is computed again, all of its own activations are "
    "there, of one micro-batch.",
}

planned(
    "17.2 memory_bytes",
    partial(recorded, of="memory"),
    core=lambda rng: [*map(case, table()["memory"][:-2])],
    sturdy=lambda rng: [*map(case, table()["memory"][-2:])],
    tolerance=0.05,
    words=WORDS | WORDS_OF_BYTES,
    hints=BYTES,
    mistakes=mistakes("memory", [*BYTES]),
)

# ---- 17.3 best_plan ------------------------------------------------------------------------------

NAMES = ("dp", "tp", "pp", "m", "checkpoint")
Plan = tuple[Any, ...]  # its numbers, in the order of NAMES
MORE = 1.15  # of a GPU's memory: what a sum may be off, where little is kept
Known = dict[Plan, tuple[float, float]]  # seconds and bytes of all plans that use every GPU


def known_plans(case: Case) -> Known:
    [entry] = (entry for entry in table()["clusters"] if entry["given"] == case.options)
    return {(*plan,): (seconds, size) for *plan, seconds, size in entry["plans"]}


def best_of(case: Case) -> Plan:
    """The fastest plan of those that fit, also if they need ``MORE`` than was counted."""
    known, memory = known_plans(case), case.options["cluster"]["memory"]
    return min((p for p in known if MORE * known[p][1] <= memory), key=lambda p: known[p][0])


def best(given: list[tuple]) -> list[Facts]:
    [(model, cluster)] = given
    found = best_of(Case(1, options={"model": model, "cluster": cluster}))
    return [dict(zip(NAMES, found, strict=True))]


def chosen(play: Play) -> Plan:
    got = play.returned[0]
    return tuple(got[name] for name in NAMES) if isinstance(got, dict) else ()


def nearly_the_fastest(play: Play) -> Iterator[Finding]:
    """It uses every GPU, fits, and takes at most a fiftieth longer than the fastest that fits."""
    for got in play.returned:
        if not isinstance(got, dict):
            yield Finding("type", "returns", 0, got, best(play.inputs[0])[0])
            return
        if missing := [name for name in NAMES if name not in got]:
            yield Finding("entries", f"it returns {got}, without {', '.join(missing)}")
            return
        known, plan, text = known_plans(play.case), chosen(play), f"it returns {got}"
        cluster, fastest = play.case.options["cluster"], best_of(play.case)
        (took, size), (least, _) = known.get(plan, (0.0, 0.0)), known[fastest]
        if got["dp"] * got["tp"] * got["pp"] != cluster["nodes"] * cluster["gpus"]:
            yield Finding("gpus", text)
        elif plan not in known:
            yield Finding("parts", text)
        elif size > MORE * cluster["memory"]:
            yield Finding("memory", f"{text}: {size / 1e9:.1f} GB on the fullest GPU")
        elif took > 1.02 * least:
            yield Finding("slow", f"{text}: {took:.4g} s, and {least:.4g} s is possible")


def more(name: str) -> Callable[[Play], bool]:
    """The plan is slow, and has more of this than the fastest that fits."""
    at = NAMES.index(name)
    return lambda play: found("slow")(play) and chosen(play)[at] > best_of(play.case)[at]


planned(
    "17.3 best_plan",
    best,
    core=lambda rng: [*map(case, table()["clusters"])],
    special=lambda case: set(),
    free=["returned"],
    rules=[without_a_word, nearly_the_fastest],
    hints={
        "entries": "A plan has five entries: dp, tp, pp, m and checkpoint.",
        "gpus": "dp · tp · pp is the number of GPUs. None is left over.",
        "parts": "pp divides the layers, and dp · m the batch; m is a power of two here.",
        "memory": "It does not fit into a GPU's memory. Which plans do fit?",
        "tp-across": "tp leads across nodes, and nothing hides its four calls in each layer. "
        "Which kind of parallelism should cross nodes?",
        "checkpoint": "Layers are computed twice. A faster plan fits without that.",
        "dp": "dp is larger than in the fastest plan. Which backward hides its gradients, and how "
        "long does it last?",
        "tp": "tp is larger than in the fastest plan. How much do its ranks send for each layer, "
        "and what hides that?",
        "pp": "pp is larger than in the fastest plan. How long do its stages stand idle?",
        "m": "m is larger than in the fastest plan. What comes once for each micro-batch?",
        "slow": "A faster plan fits. Is it left out, or counted as too large or too slow?",
    },
    diagnoses={name: more(name) for name in ("checkpoint", "dp", "tp", "pp", "m")}
    | {
        "tp-across": lambda play: (
            found("slow")(play) and chosen(play)[1] > play.case.options["cluster"]["gpus"]
        ),
    },
)
