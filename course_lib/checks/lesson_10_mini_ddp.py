"""Lesson 10: write DistributedDataParallel, its buckets, and BatchNorm over all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.checks import lesson_05_gradient_averaging as by_hand
from course_lib.checks.cases import Case, crowd
from course_lib.checks.diagnose import found, only, says
from course_lib.checks.driven import BACKWARD, FORWARD, REDUCES, BothWays, Net, Training, rounds
from course_lib.checks.exercise import Diagnosis, Exercise, Finding, Play, declare, turned
from course_lib.checks.models import model
from course_lib.checks.rules import trace_of

# ---- 10.1 MiniDDP --------------------------------------------------------------------------------

LACKS = {"on rank 0": range(1), "but on rank 0": range(1, 99), "on any rank": range(99)}


def train(
    given: list[tuple[Training]], start: Callable[[list], None] = by_hand.spread,
    reduces: Callable[[str], bool] = REDUCES.__contains__, **mean: Any,
) -> None:  # fmt: skip
    """Lesson 05 in rounds: all begin with rank 0's tensors, and average the gradients of the rounds
    that reduce. The rest are mistakes."""
    jobs, models = [job for (job,) in given], [(job.model,) for (job,) in given]
    start(models)
    steps = [job.begins() for job in jobs]
    for number, kind in enumerate(jobs[0].rounds):
        for job in jobs:
            job.passes(job.model, number)
        if reduces(kind):
            by_hand.average(models, **mean)
        for job, sgd in zip(jobs, steps, strict=True):
            job.ends(number, sgd)


def job(case: Case, rank: int) -> tuple[Training]:
    o, net, source = case.options, model(case, rank), case.random("batch", rank)
    lacks = o.get(by_hand.MISSING, "").removeprefix("the second layer ")
    batches = [torch.tensor([[source.randrange(-4, 5) for _ in "ab"] for _ in "ab"]) / 8
               for _ in o["rounds"]]  # fmt: skip
    for p in net.parameters():
        p.data /= 32
    without = ("second",) if rank in LACKS.get(lacks, ()) else ()
    batches = [b.to(getattr(torch, case.dtype)) for b in batches]
    return (Training(Net(net), o["rounds"], batches, o["cap_bytes"], without),)


def buckets(
    params: list[nn.Parameter], cap: float, order: int = -1, frozen: bool = False,
    size: Callable[[Tensor], int] = attrgetter("nbytes"), mixed: bool = False,
    closes: Callable[[int, int, float], bool] = lambda held, more, cap: held >= cap,
) -> list[list[nn.Parameter]]:  # fmt: skip
    """In reverse order; a bucket closes when it reaches the cap, or the dtype changes. The rest are
    mistakes."""
    out: list[list[nn.Parameter]] = []
    for p in [p for p in params if p.requires_grad or frozen][::order]:
        if not out or (p.dtype != out[-1][-1].dtype and not mixed) or (
            closes(sum(map(size, out[-1])), size(p), cap)):  # fmt: skip
            out.append([])
        out[-1].append(p)
    return out


def planned(play: Play) -> list[tuple[int, float]]:
    """Of each bucket: its bytes, and when it is full, in seconds after its round has begun; where a
    gradient is missing, it may wait for finish()."""
    job = play.given(0)
    layers = [m for m in job.model.children() if isinstance(m, nn.Linear)][::-1]
    before = inf if by_hand.MISSING in play.case.options else FORWARD * len(layers)
    there = {p: before + BACKWARD * k for k, m in enumerate(layers, 1) for p in m.parameters()}
    return [(sum(p.nbytes for p in bucket), max(there[p] for p in bucket))
            for bucket in buckets(job.trained(), job.cap_bytes)]  # fmt: skip


def as_planned(play: Play) -> Iterator[Finding]:
    """One all_reduce for each bucket, in their order, when it is full; no call in no_sync."""
    plan = planned(play)
    for number, kind, rank, began, calls in rounds(play):
        want = [size for size, _ in plan] if kind in REDUCES else []
        said = f"round {number} ({kind}), rank {rank}: "
        if [e.nbytes for e in calls] != want or any("all_reduce" not in e.op for e in calls):
            got = ", ".join(f"{e.op} of {e.nbytes} bytes" for e in calls) or "no call"
            yield Finding("calls", f"{said}{got}; the buckets to reduce have {want} bytes")
        for e, (_, due) in zip(calls, plan, strict=False):
            if e.issued > began + due + 1e-6:
                at_once = all(e.issued > began + plan[-1][1] - 1e-6 for e in calls)
                yield Finding("after backward" if at_once else "late", f"{said}{e.op} of {e.nbytes}"
                              f" bytes is issued after {1e3 * (e.issued - began):.2f} ms, its "
                              f"bucket is full after {1e3 * due:.2f} ms")  # fmt: skip
                break


def trained(world: int, kind: str, cap: int, kinds: str = "sync", lacks: str = "", **rest: Any):
    options = {"model": kind, "cap_bytes": cap, "rounds": tuple(kinds.split(", "))}
    more = {by_hand.MISSING: f"the second layer {lacks}"} if lacks else {}
    return Case(world, options=options | more, **rest)


def unusual(case: Case) -> set[str]:
    kinds = case.options["rounds"]
    return {name for name, there in {
        "no_sync": "no_sync" in " ".join(kinds), "evaluate": "evaluate" in " ".join(kinds),
        "between": "evaluate between" in kinds, "kept gradient": "no_sync with all" in kinds,
        "several steps": sum(kind in REDUCES for kind in kinds) > 1}.items() if there}  # fmt: skip


two, four, twice, wrong = "two layers", "four layers", "sync, sync", turned(train)
declare(Exercise(
    "10.1", "MiniDDP", train, inputs=job, settle=by_hand.zero_or_none, tolerance=1e-5, length_is="",
    core=lambda rng: [trained(*o) for o in (
        (2, "one layer", 1000), (2, two, 1), (3, two, 24), (2, two, 16, twice),
        (5, four, rng.randrange(17, 60), twice), (2, two, 24, "no_sync, no_sync, sync, sync"),
        (3, "buffers", 40), (2, "first layer frozen", 8, twice), (4, "a shared weight", 16, twice),
        (2, two, 25, twice, "on rank 0"), (3, four, 30, twice, "but on rank 0"), (4, four, 24))],
    sturdy=lambda rng: [
        trained(1, two, 24, "no_sync, sync, sync"), trained(crowd(rng), two, 24),
        trained(2, "two dtypes", 40, twice), trained(2, two, 24, dtype="float64"),
        *(trained(2, two, 24, r) for r in ("forward in no_sync, sync", "backward in no_sync, sync",
                                           "evaluate, sync, evaluate", "evaluate between")),
        trained(3, four, 24, "sync", "on any rank"),
        trained(2, two, 24, "no_sync with all, sync", "on rank 0")],
    special=unusual, fits=lambda case: case.world > 1, smaller=lambda case: [], budget=[as_planned],
    mistakes=[
        *(wrong(*known) for known in by_hand.AVERAGES),
        wrong("no-broadcast", "The ranks' models differ from the start. Whose parameters and "
              "buffers should all have?", start=lambda models: None),
        wrong("stays-local", "After finish() each rank has its own gradients in .grad. (A hook "
              "gets the parameter, not the gradient.) Who writes the mean there?",
              which=slice(0)),
        wrong("always", "Gradients travel though the forward pass ran in no_sync. (finish() comes "
              "after the block: what does it know of it?)", reduces=lambda kind: True),
        wrong("last-bucket", "The first parameters of the model keep each rank's own gradients. "
              "Their bucket is the last, and need not reach the cap.", {"which": slice(1, None)},
              {"which": slice(2, None)}),
    ],
    diagnoses=[
        Diagnosis("compares-tensors", "`in` and index() compare tensors number by number. A set, a "
                  "dict or `is` asks whether it is the same parameter.",
                  says("Boolean value of Tensor")),
        Diagnosis("not-all-written", "It calls a method that is not written yet.", lambda p: p.done
                  and any(isinstance(s.returned, str) for s in p.seen[0])),
        Diagnosis("order-by-rank", "Two ranks reduce different buckets in one call, or one makes "
                  "fewer calls. On a rank that lacks a gradient another bucket is full first, and "
                  "one never is: who waits for whose turn, and what issues the buckets that are "
                  "open when backward has ended?",
                  lambda p: found("Mismatch")(p) and by_hand.MISSING in p.case.options),
        Diagnosis("after-backward", "No bucket is issued before the last gradient is there. Some "
                  "were full before: what could issue them then?", only("after backward")),
        Diagnosis("waits-in-hook", "A bucket is issued later than it is full: backward has stood "
                  "still. Which call makes it wait, and when is the mean needed?",
                  only("late", "after backward")),
        Diagnosis("calls", "Compare the calls with the buckets. Do they begin with the first "
                  "layers, whose gradients come last? Does a bucket close before it has reached "
                  "the cap, or never? Is a shared weight in two? Is there a call for a round whose "
                  "forward pass ran in no_sync, or that has no backward pass?",
                  only("calls", "late", "after backward")),
    ],
))  # fmt: skip

# ---- 10.2 make_buckets ---------------------------------------------------------------------------


def some_parameters(case: Case, rank: int) -> tuple[list[nn.Parameter], int]:
    """One for each size, filled with its number: 4 are four floats, 4f frozen, 4d of float64."""
    words = case.options["sizes"].split()
    return [nn.Parameter(torch.full((int(word.strip("fd")),), k + 1.0, dtype=torch.float64 if "d"
                                    in word else torch.float32), requires_grad="f" not in word)
            for k, word in enumerate(words)], case.options["cap_bytes"]  # fmt: skip


def cut(given: list[tuple], lost: bool = False, **knobs: Any) -> list:
    [(params, cap)] = given
    made = buckets(params, cap, **knobs)
    return [[[p.detach() for p in b] for b in made if not lost or sum(p.nbytes for p in b) >= cap]]


def parameters(*cases: tuple[str, int]) -> list[Case]:
    return [Case(1, options={"sizes": sizes, "cap_bytes": cap}) for sizes, cap in cases]


wrong, BEFORE = turned(cut), {"closes": lambda held, more, cap: held + more > cap}
declare(Exercise(
    "10.2", "make_buckets", cut, inputs=some_parameters, in_ranks=False, free=["left"],
    core=lambda rng: parameters(
        ("4", 100), ("2 4 2 4", 24), ("2 4 2 4", 25), ("1 1 1 1 1", 8), ("1 1 9 1 1", 12),
        ("2 4f 2", 20), (" ".join(str(rng.randrange(1, 9)) for _ in range(9)), 30)),
    sturdy=lambda rng: parameters(("", 8), ("2f 2f", 8), ("2 2 2d 2d", 16), ("2 2d 2 2d", 100)),
    smaller=lambda case: [], length_is="",
    mistakes=[
        wrong("forward-order", "The first bucket holds the first parameters of the model. Their "
              "gradients come last.", {"order": 1}, {"order": 1, "size": Tensor.numel},
              {"order": 1, **BEFORE}),
        wrong("closes-too-soon", "A bucket closes before a parameter would take it past the cap. "
              "It should take that one too, then close.", BEFORE),
        wrong("closes-too-late", "A bucket of exactly cap_bytes has reached the cap.",
              closes=lambda held, more, cap: held > cap),
        wrong("elements", "The cap is in bytes; something else is counted.",
              {"size": Tensor.numel}, {"size": Tensor.numel, **BEFORE}),
        wrong("frozen", "A frozen parameter has no gradient, and needs no bucket.", frozen=True),
        wrong("mixed", "A bucket holds two dtypes, and cannot become one flat tensor.", mixed=True),
        wrong("last-lost", "The last bucket is missing. Must it reach the cap?", lost=True),
    ],
    special=lambda case: {name for name, mark in (("frozen", "f"), ("two dtypes", "d"))
                          if mark in case.options["sizes"]},
))  # fmt: skip

# ---- 10.3 sync_batch_norm ------------------------------------------------------------------------


def batch(case: Case, rank: int) -> tuple[BothWays]:
    """A batch of this rank's own; weight and bias are the same everywhere."""

    def numbers(who: object, *shape: int) -> Tensor:
        source = torch.Generator().manual_seed(case.random(who).getrandbits(40))
        return torch.randint(-16, 17, shape, generator=source).to(getattr(torch, case.dtype)) / 8

    shape = (case.options["batches"][rank], case.length, *case.options.get("L", ()))
    x, upstream = numbers(f"x {rank}", *shape) + rank / 2, numbers(f"dy {rank}", *shape)
    weight, bias = numbers("weight", case.length) + 3, numbers("bias", case.length)
    return (BothWays(x, weight, bias, case.options.get("eps", 1e-5), upstream),)


def moments(batch: Tensor) -> tuple[Tensor, Tensor]:
    """By channel: the variance, with n below, and the mean. Of an empty batch NaN."""
    mean = batch.mean(1)
    return batch.square().mean(1) - mean.square(), mean


def of_all(batches: list[Tensor], rank: int) -> tuple[Tensor, Tensor]:
    return moments(torch.cat(batches, 1))


def averaged(batches: list[Tensor], rank: int, between: int = 0) -> tuple[Tensor, Tensor]:
    """The mean of the ranks' variances, perhaps with that between the ranks, and of their means."""
    each = torch.stack([torch.stack(moments(b)) for b in batches])
    variance, mean = each.mean(0)
    return variance + between * each[:, 1].var(0, correction=0), mean


def normalise(
    given: list[tuple[BothWays]], statistics: Callable[..., Any] = of_all, added: bool = False
) -> None:
    """One process, all batches: values, and the gradients of all ranks' losses together, but of
    weight and bias each rank's own. The rest are mistakes."""
    jobs = [job for (job,) in given]
    leaves = [{k: t.double().requires_grad_() for k, t in job.given.items()} for job in jobs]
    batches = [leaf["x"].transpose(0, 1).flatten(1) for leaf in leaves]
    total = torch.zeros((), dtype=torch.float64)
    for rank, (one, leaf) in enumerate(zip(jobs, leaves, strict=True)):
        variance, mean = statistics(batches, rank)
        z = (leaf["x"].transpose(1, -1) - mean) * (variance + one.eps).rsqrt()
        out = (z * leaf["weight"] + leaf["bias"]).transpose(1, -1)
        one.noted["output"] = out.detach().to(one.upstream.dtype)
        total = total + (out * one.upstream).sum()
    total.backward()
    for one, leaf in zip(jobs, leaves, strict=True):
        for name, t in leaf.items():
            grads = [m[name].grad for m in leaves] if added and name != "x" else [t.grad]
            one.noted[f"{name}.grad"] = sum(
                g.to(one.upstream.dtype) for g in grads if g is not None
            )


def one_each_way(play: Play) -> Iterator[Finding]:
    """One all_reduce in each direction, of at most three numbers a channel."""
    for rank in range(play.case.world):
        calls = trace_of(play).of(rank)
        numbers = [e.nbytes // getattr(torch, e.dtype or "uint8").itemsize for e in calls]
        said = f"rank {rank} calls {', '.join(e.op for e in calls) or 'nothing'}"
        if [e.op for e in calls] != ["all_reduce"] * 2:
            yield Finding("calls", said)
        elif max(numbers) > 3 * play.case.length:
            yield Finding("bytes", f"{said} with {numbers} numbers; 3 a channel are enough")


def norms(*cases: tuple, **rest: Any) -> list[Case]:
    """A case for each (channels, batches), perhaps with more."""
    return [Case(len(rows), channels, options={"batches": rows, **dict(*more)}, **rest)
            for channels, rows, *more in cases]  # fmt: skip


wrong = turned(normalise)
declare(Exercise(
    "10.3", "sync_batch_norm", normalise, inputs=batch, tolerance=1e-5, length_is="channels",
    core=lambda rng: norms((1, (2, 2)), (2, (3, 3, 3)), (1, (1, 3)), (2, (4, 1, 2)),
                           (3, (1, 1, 1, 1)), (2, (2, 3), {"L": (3,)}), (2, (3, 2), {"eps": 0.5}),
                           (rng.randrange(2, 6), (rng.randrange(2, 6), rng.randrange(2, 6)))),
    sturdy=lambda rng: [*norms((2, (4,)), (2, (0, 3)), (2, (2, 0, 3), {"L": (2,)}),
                               (2, (1,) * crowd(rng)), (3, (1, 5, 2, 3, 1))),
                        *norms((2, (2, 3)), dtype="float64")],
    smaller=lambda case: [], budget=[one_each_way], fits=lambda case: case.world > 1,
    special=lambda case: {name for name, there in {
        "an empty batch": 0 in case.options["batches"], "positions": "L" in case.options,
        "batches of unequal size": len(set(case.options["batches"])) > 1}.items() if there},
    mistakes=[
        wrong("local", "Each rank uses the statistics of its own batch, as plain BatchNorm does.",
              statistics=lambda batches, rank: moments(batches[rank])),
        wrong("variances-averaged", "The ranks' variances are averaged. Batches differ in their "
              "means as well, and that is part of the variance.", statistics=averaged),
        wrong("counts-ignored", "The ranks' means are averaged, though their batches differ in "
              "size: add up sums and counts, then divide.",
              statistics=partial(averaged, between=1)),
        wrong("unbiased", "BatchNorm normalises by the variance with n below, not n − 1.",
              statistics=lambda batches, rank: torch.var_mean(torch.cat(batches, 1), 1)),
        wrong("constant-statistics", "The gradient of x takes mean and variance for constants. "
              "They depend on every sample.",
              statistics=lambda batches, rank: of_all([b.detach() for b in batches], rank)),
        wrong("own-path-only", "The gradient of x lacks what it does to other ranks' outputs. (A "
              "plain all_reduce has no backward: autograd takes others' sums for constants.)",
              statistics=lambda batches, rank: of_all(
                  [b if k == rank else b.detach() for k, b in enumerate(batches)], rank)),
        wrong("weights-added", "The gradients of weight and bias are added up over the ranks. They "
              "stay local: DDP averages them.", added=True),
    ],
    diagnoses=[
        Diagnosis("statistics-apart", "Sums, squares and counts can travel in one tensor: one "
                  "all_reduce forward, one backward.", only("calls")),
    ],
))  # fmt: skip
