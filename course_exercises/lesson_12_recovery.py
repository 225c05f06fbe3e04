"""Lesson 12: what a killed job goes on from."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import ceil
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler

from course_check.cases import Case, chunked, crowd, drawn, rows
from course_check.compare import ANYTHING
from course_check.exercise import Finding, Play, untouched
from course_check.rules import without_a_word
from course_check.usual_diagnoses import says
from course_exercises.declare import each, exercise, marked
from course_exercises.drivers.deaths import HERE, LIVES, Saves
from course_exercises.drivers.resumed import Job, Resumed, note_end, seed

# ---- 12.1 Checkpoint -----------------------------------------------------------------------------


def state(case: Case, number: int) -> dict[str, Any]:
    """What a job has: tensors, numbers, generators; states differ everywhere. In a look at the disk
    it is so small that Python keeps the whole file until it is flushed."""
    is_small = case.options["with"] == LOOK
    numbers = drawn(case, f"state {number}", 10 if is_small else 1500)
    source = torch.Generator().manual_seed(case.random(number).getrandbits(40))
    return {
        "model": {"weight": numbers + number, "steps": torch.tensor(number)},
        "step": 10 + number,
        "optimizer": {"state": {0: {"momentum_buffer": numbers / 3}}, "lr": 0.1 / (1 + number)},
        "generators": [None if is_small else source.get_state(), None],
    }


def states(case: Case, rank: int) -> tuple[Saves]:
    return (Saves(case.options["with"], [state(case, k) for k in range(4)]),)


def facts(play: Play) -> dict[str, Any]:
    return play.got(0).args[0] if play.done else {}


def in_order(play: Play) -> Iterator[Finding]:
    """Saved and loaded without a death."""
    seen = facts(play)
    if "error" in seen:
        yield Finding("fails", f"in a process of its own save() or load() {seen['error']}")
    if (first := seen.get("first", "None")) != "None":
        yield Finding("nothing-saved", f"before any save() load() {says_of(first)}, not None")
    for key, kind, who in (("found", "values", ""), ("own", "remembers", " of the same object")):
        for number, loaded in enumerate(seen.get(key, [])):
            if loaded != f"state {number}":
                text = f"after save(state {number}) load(){who} {says_of(loaded)}"
                yield Finding(kind, f"{text}, not state {number}")


def whole(play: Play) -> Iterator[Finding]:
    """The earliest death at which something is lost."""
    before = "state 0" if play.case.options["with"] == BEFORE else "None"
    had = "a state had been saved" if before != "None" else "nothing had been saved before"
    seen = facts(play)
    for death in seen.get("deaths", []):
        once, twice = death["once"], death["twice"]
        when = f"killed {death['when']}"
        if once not in (before, "state 1"):
            text = f"{when}: load() {says_of(once)}; {had}"
            yield Finding(how_lost(seen, death), text)
        elif twice not in (once, "state 2"):
            had = f"after the first death it returned {once}" if once != "None" else had
            text = f"the next save, too, {when}: load() {says_of(twice)}; {had}"
            yield Finding("second-death", text)
        elif death["end"] != "state 3":
            text = f"{when}, twice; then a save that is not killed: it or load()"
            yield Finding("next-save", f"{text} {says_of(death['end'])}")
        else:
            continue
        return


def says_of(found: str) -> str:
    return found if found.startswith(("raises", "is killed", "does not")) else f"returns {found}"


def how_lost(seen: dict[str, Any], death: dict[str, Any]) -> str:
    """By what the plain save does to the file that load reads."""
    events, when = seen["events"], death["when"]
    named = [e for e in events if e.startswith("renames") and e.endswith("to state.pt")]
    if "has written" in when and ("opens state.pt to write" in when or not events):
        return "other-disk" if named else "onto-the-path"
    if any(e.startswith(("removes state.pt", "renames state.pt")) for e in events):
        return "removes-first"
    if not named or death["half read"]:
        return "takes-unfinished" if named else "lost"
    return "unsynced" if {*named} & {*seen["grown"]} else "lost"


def cleared(play: Play) -> Iterator[Finding]:
    seen = facts(play)
    if seen.get("unsynced"):
        text = "a file that load() reads has its name before its bytes are on the disk"
        yield Finding("unsynced", text)
    if seen.get("files", 0) > 2 and "error" not in seen:
        text = f"after a save that was killed and one that was not, {seen['files']} files are there"
        yield Finding("piles-up", text)


def refused(play: Play) -> Iterator[Finding]:
    """What cannot be saved or loaded raises, and what was saved is still there."""
    seen = facts(play)
    for one in seen.get("full", []):
        if one["found"] not in ("state 0", "state 1"):
            yield Finding("full-disk-loses", f"{one['when']}: then load() {says_of(one['found'])}")
        elif not one["raised"] and one["found"] != "state 1":
            yield Finding("swallows", f"{one['when']}: save() returns as if all were well")
    for one in seen.get("strange", []):
        if one["ran"]:
            yield Finding("runs-strangers", f"load() of {one['when']}: it has run what is in it")
        elif one["found"]:
            kind = "hides-damage" if one["found"] == "None" else "takes-anything"
            yield Finding(kind, f"load() of a file that is {one['when']} returns {one['found']}")
    if not seen.get("whole", True):
        yield Finding("neighbours", "a file of somebody else's in the folder has changed")
    for one in seen.get("met", []):
        ends = one["mine"], one["theirs"]
        if ends[0] != "state 1" or ends[1] not in ("state 0", "state 2"):
            text = (
                f"another checkpoint, state.1, is saved just {one['when']}: then save() or load()"
            )
            said = f"{says_of(ends[0])}, and load() of state.1 {says_of(ends[1])}"
            yield Finding("one-name", f"{text} {said}")
            return


LOOK = "a look at the disk"
BEFORE, NEVER = "a death in a later save", "a death in the first save"


def stories(*names: str) -> Callable[..., list[Case]]:
    return lambda rng: [Case(1, n, options={"with": name}) for n, name in enumerate(names)]


HINTS = {
    "fails": "It works in the notebook's process and fails in a new one. What does it take from "
    "the process in which it was made?",
    "nothing-saved": "Before the first save there is no file yet, and load() returns None.",
    "values": "No death is needed: what is loaded is not what was saved.",
    "remembers": "load() gives what the object remembers, and the job has changed that since. The "
    "file has it as it was saved.",
    "other-disk": "The unfinished file lies on another file system. There a move is a copy, byte "
    "by byte, into the file that load() reads.",
    "onto-the-path": "save() writes into the file that load() reads. From its first byte to its "
    "last, this file holds neither state. A copy helps only if load() turns to it.",
    "removes-first": "The old file is taken away before the new one has its name. Which call does "
    "both in one step?",
    "takes-unfinished": "A file that load() reads was being written when the process died. Which "
    "files does load() need? None of them may have its own name before it is whole.",
    "second-death": "One death is survived, and a second one is not: what the first has left is "
    "taken for whole. What does save() do with a file that a death has spoilt?",
    "next-save": "After a death the next save does not come through. It meets what the dead one "
    "has left: a file, a folder, a marker.",
    "lost": "At this moment neither the old state nor the new one can be found. What does load() "
    "look at, and in which order does it change?",
    "unsynced": "A file has its name before its bytes are on the disk: Python and the system write "
    "them later. flush() and os.fsync() come before the name.",
    "piles-up": "Files stay behind. Which names does a save use, and when is the file of a "
    "killed save removed?",
    "full-disk-loses": "A save that fails may lose its own state, but not the one before it.",
    "swallows": "A save that came to nothing has to raise, or the job trains on for days without a "
    "checkpoint.",
    "runs-strangers": "A pickle can run any code when it is loaded. torch.load(path, "
    "weights_only=True) takes tensors and plain values alone.",
    "hides-damage": "For a spoilt checkpoint load() raises, and does not return None. Otherwise "
    "the job begins anew and writes over what could be mended.",
    "takes-anything": "What is loaded was never saved. What tells a checkpoint from another file?",
    "neighbours": "The folder belongs to others as well. Which files are the checkpoint's own?",
    "one-name": "Two checkpoints in one folder write the same file. Ranks may save state.0 and "
    "state.1 at one time: every file of a save needs the whole name of its path in its own.",
}

exercise(
    "12.1 Checkpoint",
    untouched,
    inputs=states,
    in_ranks=False,
    lives=LIVES,
    free=["left", "returned"],
    special=lambda case: {case.options["with"]},
    core=stories(HERE, BEFORE, NEVER),
    regimes=stories(LOOK),
    sturdy=stories("a full disk", "strange files", "other files in the folder"),
    rules=[in_order, whole, refused],
    budget=[cleared],
    hints=HINTS,
)

# ---- 12.2 train_resumable ------------------------------------------------------------------------


def resumed(case: Case, rank: int) -> tuple[Resumed]:
    o = case.options
    shapes = ((6, 2), (6,), (2, 6), (2,))
    weights = [drawn(case, f"weights {k}", *shape) for k, shape in enumerate(shapes)]
    x = drawn(case, "inputs", case.length, 2)
    return (Resumed(weights, x, (x[:, 0] > x[:, 1]).long(), 2, o["draws"], tuple(o["lives"])),)


Generators = tuple[Any, Any, Any]


def generators() -> Generators:
    return torch.get_rng_state(), numpy.random.get_state(), random.getstate()


def restore(states: Generators, which: str = "torch numpy random") -> None:
    of_torch, of_numpy, pythons = states
    if "torch" in which:
        torch.set_rng_state(of_torch)
    if "numpy" in which:
        numpy.random.set_state(of_numpy)
    if "random" in which:
        random.setstate(pythons)


def mean(every: Tensor, rank: int) -> Tensor:
    return every.sum(0) / len(every)


PARTS = ("model", "optimizer", "scheduler")


@dataclass(frozen=True)
class Habits:
    """What a loop takes over from the life before it; mistakes take less, or at another time."""

    finds: bool = True
    loads: Callable[[int], tuple[str, ...]] = lambda rank: (*PARTS, "own")
    when: Callable[[int], str] = lambda at: "after skipping" if at else "before"
    which: str = "torch numpy random"
    of_rank: Callable[[int], int] = lambda rank: rank
    position: Callable[[int], int] = lambda at: at
    told: Callable[[int, int, int], int] = lambda epoch, first, at: epoch
    last: Callable[[int, int], int] = lambda until, start: until
    made: Callable[[int], int] = lambda step: step  # how many steps the file says
    idle: bool = True  # it loads also if nothing is left to train
    recounts: bool = False  # the epoch, from the step
    shuffles: bool = True
    clears: bool = True  # gradients begin at zero
    order: tuple[str, str] = ("optimizer", "scheduler")  # of their steps
    whole_epochs: bool = False  # it looks at `until` only where an epoch ends
    early: tuple[str, ...] = ()  # what is taken for the file before the step has changed it
    average: Callable[[Tensor, int], Tensor] = mean
    returns: Callable[[list, int, list], list] = lambda losses, rank, old: losses[rank]


Saved = dict[str, Any]
Rank = Iterator[Any]


def one_rank(job: Job, world: int, rank: int, saved: Saved, stop: int, habits: Habits) -> Rank:
    """A rank's life. It hands out its gradients where it meets the others, in a list, and at its
    end its losses and what it would save, in a tuple."""
    loads, step = habits.loads(rank), saved.get("step", 0)
    for part in PARTS if saved and (habits.idle or step < stop) else ():
        if part in loads:
            getattr(job, part).load_state_dict(copy.deepcopy(saved[part]))
    sampler: DistributedSampler = DistributedSampler(job.dataset, world, rank, habits.shuffles)
    loader = DataLoader(job.dataset, batch_size=job.batch_size, sampler=sampler)
    first, at = divmod(step, len(loader))
    epoch, at, own = first, habits.position(at), saved.get("own") if "own" in loads else None
    losses, kept = list[float](), Saved()

    def again(now: str) -> None:
        if own and now == habits.when(at):
            restore(own[habits.of_rank(rank)], habits.which)

    while step < stop:
        sampler.set_epoch(habits.told(epoch, first, at))
        again("before")
        coming = iter(loader)
        again("before skipping")
        for _ in range(at):
            next(coming)
        again("after skipping")
        for inputs, labels in islice(coming, None if habits.whole_epochs else stop - step):
            again("after a batch")
            own, kept = None, {"own": generators()}
            loss = cross_entropy(job.model(inputs), labels)
            if habits.clears:
                job.optimizer.zero_grad()
            loss.backward()
            yield [p.grad for p in job.model.parameters()]
            getattr(job, habits.order[0]).step()
            kept |= {part: copy.deepcopy(getattr(job, part).state_dict()) for part in PARTS}
            getattr(job, habits.order[1]).step()
            losses, step = [*losses, loss.item()], step + 1
        epoch, at, own = step // len(loader) if habits.recounts else epoch + 1, 0, None
    now = {part: copy.deepcopy(getattr(job, part).state_dict()) for part in PARTS}
    now |= {"own": generators(), "step": step} | {name: kept[name] for name in habits.early if kept}
    yield losses, now


def in_turn(
    ranks: list[Rank], own: list[Generators], average: Callable[[Tensor, int], Tensor]
) -> list[Any]:
    """The ends of the ranks; each goes on to where it meets the others, and then the next. They
    take turns in torch's, numpy's and random's generators as well."""
    while True:
        met = []
        for rank, one in enumerate(ranks):
            restore(own[rank])
            met.append(next(one))
            own[rank] = generators()
        if isinstance(met[0], tuple):
            return met
        for same in zip(*met, strict=True):
            every = torch.stack(same)
            for rank, grad in enumerate(same):
                grad.copy_(average(every, rank))


def train(given: list[tuple[Resumed]], **knobs: Any) -> None:
    """The same loop, as if nobody had ended it. The rest are mistakes."""
    habits, before, saved = Habits(**knobs), generators(), Saved()
    plans = [plan for (plan,) in given]
    made: list[list[float]] = [[] for _ in plans]  # losses of lives before
    for number, (until, death) in enumerate(plans[0].lives, 1):
        saved = saved if habits.finds else {}
        start = saved.get("step", 0)
        stop = start + death[1] - 1 if death else habits.last(until, start)
        jobs, own = [Job(plan) for plan in plans], []
        for rank in range(len(jobs)):
            seed(number, rank)
            own.append(generators())
        ranks = [one_rank(job, len(jobs), k, saved, stop, habits) for k, job in enumerate(jobs)]
        losses, states = map(list, zip(*in_turn(ranks, own, habits.average), strict=True))
        for rank, (plan, job) in enumerate(zip(plans, jobs, strict=True)):
            mine = habits.returns(losses, rank, made[rank])
            made[rank] = made[rank] + losses[rank]
            plan.noted |= note_end(number, "killed" if death else mine, job, ANYTHING)
        if stop > start:
            saved = states[0] | {
                "step": habits.made(states[0]["step"]),
                "own": [s["own"] for s in states],
            }
    restore(before)


def saves_well(play: Play) -> Iterator[Finding]:
    """One rank writes, and never into the only checkpoint."""
    for rank in range(play.case.world if play.done else 0):
        for name, value in play.got(rank).args[0].items():
            life, _, what = name.partition(", ")
            if what == "saves" and "," in value:
                yield Finding("many-writers", f"{life}: {value} write files")
                return
            if what == "saves" and "in place" in value:
                yield Finding("in-place", f"{life}: a save writes into the only checkpoint")
                return


class Ends(tuple):
    """How lives end, in words."""

    def __str__(self) -> str:
        said = [f"killed in its {d[0]} {d[1]}" if d else f"until {until}" for until, d in self]
        return ", then ".join(said)


def lives(world: int, *ends: Any, draws: str = "torch", length: int = 10, **rest: Any) -> Case:
    """A number is where a life returns; (moment, step) is where it is killed."""
    made = Ends((end, None) if isinstance(end, int) else (99, end) for end in ends)
    return Case(world, length, options={"lives": made, "draws": draws}, **rest)


def of_lives(case: Case) -> set[str]:
    n_batches = ceil(ceil(case.length / case.world) / 2)
    o, step, out = case.options, 0, set[str]()
    for until, death in o["lives"][:-1]:
        step = step + death[1] - 1 if death else until
        out |= {"an epoch's end"} if step % n_batches == 0 else {"the middle of an epoch"}
    return out | marked(
        {"other generators": o["draws"] != "torch", "killed": "killed" in str(o["lives"])}
    )


exercise(
    "12.2 train_resumable",
    train,
    inputs=resumed,
    tolerance=1e-5,
    blank=False,
    length_is="samples",
    special=of_lives,
    words={
        "torch": None,
        "an epoch's end": "a life ends where an epoch does. Where does the next one begin?",
        "the middle of an epoch": "a life ends in the middle of an epoch. Which batches have been "
        "drawn, in which order, and what did drawing them draw?",
        "other generators": "samples draw from numpy or random. Which generators does a process "
        "have?",
        "killed": "a life is killed. What has been saved by then?",
    },
    core=lambda rng: [
        lives(2, 2, 5),
        lives(2, 3, 5),
        lives(2, 4, 7),
        lives(2, ("draw", 3), 4),
        lives(2, ("step", 3), ("schedule", 2), 5),
        lives(3, rng.randrange(3, 8), 9, length=13),
        lives(2, 2, 5, draws="torch numpy random"),
    ],
    sturdy=lambda rng: [
        lives(1, 3, ("draw", 2), 7, length=5),
        lives(2, 2, 2, 4),
        lives(2, ("draw", 1), 2),
        lives(5, 1, 2, 4, length=23, draws="numpy random"),
        lives(2, 6, ("schedule", 1), 8),
    ],
    rules=[saves_well],
    hints={
        "begins-anew": "A second life begins at step 0. Does it find what the first has saved?",
        "epoch-anew": "The epoch in which a life ends begins anew: some samples are seen twice.",
        "order-anew": "After each start the order of the samples is that of epoch 0. What does "
        "set_epoch() have to be told?",
        "epoch-behind": "A life that begins with an epoch takes the order of the one before. Which "
        "epoch comes after the last batch of one?",
        "no-set-epoch": "Every epoch has the same order. What tells the sampler which one it is?",
        "no-generators": "Dropout draws other masks after a restart. What does it draw them from?",
        "rank-0s-generators": "All ranks go on with rank 0's generators. Each rank has its own.",
        "not-all-generators": "torch's generator is restored, and the dataset also draws from "
        "others: numpy's, random's.",
        "restored-too-early": "The generators are restored before the batches that have been "
        "seen are skipped. Skipping a batch draws from the generators, too.",
        "restored-too-late": "It goes wrong where a life ends with an epoch. There iter(loader) "
        "draws its seed after the state was saved; in the middle of an epoch it drew it before.",
        "restored-after-a-batch": "The generators are restored when the first new batch has been "
        "drawn. It draws, too.",
        "not-averaged": "Each rank takes the step with its own gradients, or with their sum.",
        "returned-losses": "The weights are right, and what is returned is not: this rank's own "
        "losses, of the steps made in this call.",
        "not-shuffled": "The samples come in the dataset's own order. They are to be shuffled.",
        "not-cleared": "Gradients do not begin at zero: those of the steps before are in them.",
        "past-until": "A call trains on after step `until`.",
        "no-momentum": "The optimizer begins anew: it has lost its momentum.",
        "no-schedule": "The learning rate begins anew.",
        "schedule-first": "The scheduler steps first: each step has the next one's learning rate.",
        "schedule-late": "The scheduler steps after it was saved: a restart is one step behind.",
        "generators-early": "The generators are saved as they were before the step, and dropout "
        "has drawn since.",
        "only-rank-0-loads": "Only rank 0 takes over the whole state. The other ranks begin with "
        "a part of it fresh: the model, or the optimizer, the scheduler and their generators.",
        "until-more": "`until` counts from the very first step, also in a later life.",
        "step-behind": "The last step of a life is made once more in the next. Which step is in "
        "the file: the one that was made, or the one that comes?",
        "nothing-left": "Where no step is left to make, the job keeps its fresh weights. Its state "
        "has to be loaded all the same.",
        "many-writers": "Several ranks write. Killed between two writes, they would go on at "
        "different steps; into one file, they would spoil it.",
        "in-place": "A job that is killed in such a save has lost both states. What does 12.1 do?",
        "numpys-array": "The file can be written and not read: numpy's state has an array in it. "
        "weights_only=True takes tensors, numbers, strings, lists and tuples.",
    },
    mistakes={
        "begins-anew": {"finds": False},
        "epoch-anew": each(
            position=[lambda at: 0],
            recounts=(False, True),
            when=[lambda at: "before", lambda at: "after skipping"],
        ),
        "order-anew": each(told=[lambda e, f, _: e - f, lambda e, f, _: e * (e > f)]),  # f: first
        "epoch-behind": {"told": lambda epoch, first, at: epoch - (epoch == first > 0 == at)},
        "no-set-epoch": {"told": lambda epoch, first, at: 0},
        "no-generators": {"when": lambda at: "never"},
        "rank-0s-generators": {"of_rank": lambda rank: 0},
        "not-all-generators": each(which=("torch", "torch numpy", "torch random")),
        "restored-too-early": each(when=[lambda at: "before", lambda at: "before skipping"]),
        "restored-too-late": {"when": lambda at: "after skipping"},
        "restored-after-a-batch": {"when": lambda at: "after a batch" if at else "before"},
        "not-shuffled": {"shuffles": False},
        "not-cleared": {"clears": False},
        "past-until": [{"whole_epochs": True}, {"last": lambda until, start: until + 1}],
        "no-momentum": {"loads": lambda rank: ("model", "scheduler", "own")},
        "no-schedule": {"loads": lambda rank: ("model", "optimizer", "own")},
        "schedule-first": {"order": ("scheduler", "optimizer")},
        "schedule-late": each(early=(("scheduler",), ("scheduler", "optimizer"))),
        "generators-early": {"early": ("own",)},
        "only-rank-0-loads": [
            {"loads": lambda rank: ("model",) if rank else (*PARTS, "own")},
            {"loads": lambda rank: (*PARTS[bool(rank) :], "own")},
        ],
        "not-averaged": each(average=[lambda all, rank: all[rank], lambda all, _: all.sum(0)]),
        "returned-losses": each(
            returns=[lambda all, r, old: old + all[r], lambda all, *_: numpy.mean(all, 0).tolist()]
        ),
        "until-more": {"last": lambda until, start: start + until},
        "step-behind": {"made": lambda step: step - 1},
        "nothing-left": {"idle": False},
    },
    diagnoses={"numpys-array": says("UnpicklingError")},
)

# ---- 12.3 micro_batches --------------------------------------------------------------------------


def share_out(total: int, parts: int) -> list[int]:
    """Sizes that differ by one at most, larger ones first."""
    return [total // parts + (k < total % parts) for k in range(parts)]


def greedily(total: int, parts: int, largest: int) -> list[int]:
    return [min(largest, max(0, total - k * largest)) for k in range(parts)]


def cut(
    given: list[tuple[int, int]],
    shares: Callable[[int, int], list[int]] = share_out,
    counted: Callable[[int, int], list[int]] | None = None,
    many: Callable[[list[int], int, int], int] = lambda mine, rank, most: ceil(mine[0] / most),
    split: Callable[[int, int, int], list[int]] = lambda total, parts, _: share_out(total, parts),
) -> list[list[int]]:
    """As many on every rank, of this rank's share. The rest are mistakes."""
    total, largest = given[0]
    by = (counted or shares)(total, len(given))
    counts = [many(by, rank, largest) for rank in range(len(given))]
    sizes = zip(shares(total, len(given)), counts, strict=True)
    return [split(size, count, largest) if count else [] for size, count in sizes]


def dealt_otherwise(play: Play) -> bool:
    """All sizes are right, and on other ranks."""
    if not play.done:
        return False
    got, want = ([seen.returned for seen in after[0]] for after in (play.seen, play.expected))
    return got != want and sorted(map(str, got)) == sorted(map(str, want))


exercise(
    "12.3 micro_batches",
    cut,
    inputs=lambda case, rank: (case.length, case.options["largest"]),
    core=lambda rng: [
        *rows("largest", (2, 8, 4), (2, 8, 2), (3, 12, 3), (2, 10, 4), (3, 8, 2), (4, 18, 2)),
        *rows("largest", (3, rng.randrange(20, 50), rng.randrange(2, 5))),
    ],
    sturdy=lambda rng: [
        *rows("largest", (1, 7, 3), (3, 0, 4), (4, 3, 2), (2, 3, 1), (5, 21, 4)),
        *rows("largest", (crowd(rng), 100, 3)),
    ],
    length_is="global_batch",
    special=chunked,
    blank=False,
    rules=[without_a_word],
    hints={
        "everything": "Each rank takes the whole global batch. It is shared by all of them.",
        "remainder-lost": "The micro-batches of all ranks do not add up to the global batch.",
        "rest-to-one": "One rank has the whole remainder. The shares differ by one at most.",
        "limit-of-all": "`largest` is the most samples of a micro-batch on one rank, and here all "
        "ranks together keep to it.",
        "own-count": "The ranks make different numbers of micro-batches. A rank that has fewer "
        "leaves the others waiting.",
        "greedy": "The first micro-batches are filled, and the last gets what is left. Their sizes "
        "may differ by one at most.",
        "at-least-one": "A micro-batch has a sample that is in no share. It may be empty.",
        "larger-last": "The larger ones come first.",
        "no-zeros": "Micro-batches of size 0 are left out, and the others wait there.",
        "largest-is-a-size": "`largest` is the most samples of a micro-batch, not their number.",
        "one-too-many": "There is a micro-batch too many where the division has no remainder.",
        "other-ranks": "The right sizes, on the wrong ranks. Whose share has a sample more?",
        "one-too-few": "A micro-batch is larger than `largest`. Which share is divided, and how?",
    },
    mistakes={
        "everything": each(shares=[lambda total, n: [total] * n], counted=(None, share_out)),
        "remainder-lost": each(
            shares=[lambda total, n: [total // n] * n, lambda total, n: [ceil(total / n)] * n],
            counted=(None, share_out),
        ),
        "rest-to-one": each(
            shares=[lambda total, n: [total // n] * (n - 1) + [total // n + total % n]],
            counted=(None, share_out),
        ),
        "limit-of-all": {"counted": lambda total, n: [total] * n},
        "own-count": [
            {"many": lambda mine, rank, most: ceil(mine[rank] / most)},
            {"many": lambda mine, rank, most: ceil(mine[0] / most) * (mine[rank] > 0)},
        ],
        "greedy": [
            {"split": greedily},
            {"split": greedily, "many": lambda mine, rank, most: ceil(mine[rank] / most)},
        ],
        "at-least-one": {"split": lambda all, k, _: [max(1, size) for size in share_out(all, k)]},
        "larger-last": {"split": lambda total, parts, most: share_out(total, parts)[::-1]},
        "no-zeros": {"split": lambda total, parts, most: share_out(total, min(total, parts))},
        "largest-is-a-size": {"many": lambda mine, rank, most: most if mine[0] else 0},
        "one-too-many": {"many": lambda mine, rank, most: mine[0] // most + 1 if mine[0] else 0},
        "one-too-few": [
            {"many": lambda mine, rank, most: max(1, mine[0] // most) if mine[0] else 0},
            {"many": lambda mine, rank, most: max(1, ceil(mine[-1] / most)) if mine[0] else 0},
        ],
    },
    diagnoses={"other-ranks": dealt_otherwise},
)
