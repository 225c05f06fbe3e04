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
from course_check.usual_diagnoses import OfPlay, found, says
from course_exercises.declare import exercise, marked

Facts = dict[str, Any]
TENSOR, REPLICAS, STAGES = "tensor parallelism", "several replicas", "several stages"
AGAIN, ACROSS = "checkpointing", "more GPUs than a node has"
WORDS: dict[str, str | None] = {
    TENSOR: "tp is more than 1. What does it divide, and how often do its ranks talk?",
    REPLICAS: "dp is more than 1. What is averaged, how large is it here, and what hides it?",
    STAGES: "pp is more than 1. How many layers has a stage, and how many micro-batches count?",
    AGAIN: "activations are checkpointed. What is kept, and what is computed once more?",
    ACROSS: "the plan needs several nodes. Which groups and hops lead from one node to another?",
}


@cache
def table() -> dict[str, list[Facts]]:
    return json.loads(Path(__file__).with_suffix(".json").read_text())


def recorded(given: list[tuple], of: str = "steps", mistake: str = "", way: int = 0) -> list[float]:
    """What was measured of this plan; or what would have been, of a program with a mistake."""
    [entry] = (entry for entry in table()[of] if (*entry["given"].values(),) == given[0])
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
    "not-again": "Checkpointing puts a layer's forward into its backward, with all of tp's calls.",
    "m": "A replica has m micro-batches of batch/(dp·m) sequences. Where does each number count?",
    "bubble": "How many times as long as one micro-batch on one stage does a step take?",
    "once-a-layer": "With tp a layer has two all_reduces in forward, and two in backward.",
    "tp-is-silent": "tp's all_reduces are missing. Nothing hides them.",
    "tp-computes-all": "Each of tp ranks computes a part of every layer, not all of it.",
    "whole-gradients": "A rank averages gradients of its stage's layers, and of its part of each.",
    "not-hidden": "All gradients wait for the end of backward. When could the first be averaged?",
    "all-hidden": "Too much averaging is hidden. Which all_reduce has no backward left to hide it?",
    "every-micro-batch": "Gradients are averaged for each micro-batch. Once in a step is enough.",
    "no-hops": "Hops are missing. There are some in forward and in backward; nothing hides them.",
    "hops": "A step waits for all hops of one micro-batch, and then m − 1 times for the slowest.",
    "network": "Ranks of one node talk over its own links. Which groups lie inside a node?",
    "inside": "Not all ranks are on one node. Which groups and which hops lead from node to node?",
    "tp-across": "Ranks of a tp group are neighbours. How far apart are two ranks of a dp group?",
    "half-an-all-reduce": "An all_reduce sends about twice its bytes: it reduces, and gathers.",
    "latency": "An all_reduce among n ranks has 2·⌈log₂ n⌉ latencies, not more and not fewer.",
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
}
BYTES = {
    "units": "Bytes are asked for, not GB or GiB.",
    "float32": "Weights, gradients and activations have 2 bytes a number; the states alone have 4.",
    "master": "States are three numbers of 4 bytes for each weight: a copy of it, and Adam's two.",
    "zero": "From stage 1 on the states are divided by dp, from stage 2 on the gradients too.",
    "tp": "tp divides weights, and 12·D of the 16·D numbers that a layer keeps for each token.",
    "whole-model": "The first stage has layers/pp of the layers.",
    "m": "A micro-batch has batch/(dp·m) sequences.",
    "order": "In GPipe all m micro-batches are alive at once; in 1F1B pp are, and at most m.",
    "one-alive": "Several micro-batches are alive at once. How many in each schedule?",
    "not-again": "With checkpointing of each layer only the input is kept.",
    "keeps-nothing": "With checkpointing each layer's input stays, of all micro-batches alive.",
    "one-more": "While one layer is computed again, all of its own activations come on top, once.",
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
# Of all plans that use every GPU their seconds, their bytes, and what they would need in stage 0 of
# ZeRO, or in GPipe.
Known = dict[Plan, tuple[float, ...]]


def known_plans(case: Case) -> Known:
    [entry] = (entry for entry in table()["clusters"] if entry["given"] == case.options)
    return {(*row[:5],): (*row[5:],) for row in entry["plans"]}


def best_of(case: Case, counted: int = 1) -> Plan:
    """The fastest plan of those that fit, also if they need ``MORE`` than was counted."""
    known, memory = known_plans(case), case.options["cluster"]["memory"]
    fitting = (p for p in known if MORE * known[p][counted] <= memory)
    return min(fitting, key=lambda p: known[p][0], default=())


def best(given: list[tuple]) -> list[Facts]:
    found = best_of(Case(1, options=dict(zip(("model", "cluster"), *given, strict=True))))
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
        cluster, least = play.case.options["cluster"], known[best_of(play.case)][0]
        took, size, *_ = known.get(plan, (0.0, 0.0))
        if got["dp"] * got["tp"] * got["pp"] != cluster["nodes"] * cluster["gpus"]:
            yield Finding("gpus", text)
        elif plan not in known:
            yield Finding("parts", text)
        elif size > MORE * cluster["memory"]:
            yield Finding("memory", f"{text}: {size / 1e9:.1f} GB on the fullest GPU")
        elif took > 1.02 * least:
            yield Finding("slow", f"{text}: {took:.4g} s, and {least:.4g} s is possible")


def slow(when: Callable[[Case, Known, Plan], bool]) -> OfPlay:
    """A faster plan fits, and this is true of the one that was chosen."""
    return lambda p: found("slow")(p) and when(p.case, known_plans(p.case), chosen(p))


def more(name: str) -> OfPlay:
    """The plan has more of this than the fastest that fits."""
    at = NAMES.index(name)
    return slow(lambda case, known, plan: plan[at] > best_of(case)[at])


def fastest_by(counted: int) -> OfPlay:
    """The plan would be the fastest, or nearly, if memory were counted in another way: the number
    of its place in what is known."""

    def when(case: Case, known: Known, plan: Plan) -> bool:
        memory, fastest = case.options["cluster"]["memory"], known[best_of(case)][counted]
        # Counted so, this plan fits, and the one that is the fastest may not fit.
        fits = known[plan][counted] <= MORE * memory and memory < MORE * fastest
        return fits and known[plan][0] <= 1.1 * known.get(best_of(case, counted), (0.0,))[0]

    return slow(when)


planned(
    "17.3 best_plan",
    best,
    core=lambda rng: [*map(case, table()["clusters"])],
    special=lambda case: set(),
    free=["returned"],
    rules=[without_a_word, nearly_the_fastest],
    hints={
        "none-left": "Was no plan found here? One fits: is it left out, or counted as too large?",
        "entries": "A plan has five entries: dp, tp, pp, m and checkpoint.",
        "gpus": "dp · tp · pp is the number of GPUs. None is left over.",
        "parts": "pp divides the layers, and dp · m the batch; m is a power of two here.",
        "memory": "It does not fit into a GPU's memory. Which plans do fit?",
        "smallest": "This plan needs the least memory. Which one takes the fewest seconds?",
        "whole-states": "It would be the fastest with undivided states. What does ZeRO 1 divide?",
        "all-alive": "It would be the fastest if all m micro-batches were alive. How many are?",
        "tp-across": "tp leads across nodes, and nothing hides its calls. What should cross nodes?",
        "checkpoint": "Layers are computed twice. A faster plan fits without that.",
        "dp": "dp is larger than in the fastest plan. For how long does backward hide gradients?",
        "tp": "tp is larger than in the fastest plan. What do its ranks send for each layer?",
        "pp": "pp is larger than in the fastest plan. How long do its stages stand idle?",
        "m": "m is larger than in the fastest plan. What comes once for each micro-batch?",
        "less": "tp or pp is smaller than in the fastest plan. Is it left out, or too slow?",
        "slow": "A faster plan fits. Is it left out, or counted as too large or too slow?",
    },
    diagnoses={name: more(name) for name in ("checkpoint", "dp", "tp", "pp", "m")}
    | {
        "none-left": says("list index out of range", "empty sequence", "argument is empty"),
        "smallest": slow(lambda case, known, p: known[p][1] == min(k[1] for k in known.values())),
        "whole-states": fastest_by(2),
        "all-alive": fastest_by(3),
        "less": slow(lambda case, known, p: p[1] < best_of(case)[1] or p[2] < best_of(case)[2]),
        "tp-across": slow(lambda case, known, p: p[1] > case.options["cluster"]["gpus"]),
    },
)
