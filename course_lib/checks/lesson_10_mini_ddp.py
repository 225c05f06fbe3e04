"""Lesson 10: write DistributedDataParallel, its buckets, and BatchNorm over all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.checks.cases import Case, crowd
from course_lib.checks.diagnose import OfPlay, found, only, says
from course_lib.checks.driven import BACKWARD, FORWARD, BothWays, Net, Training, rounds
from course_lib.checks.exercise import Diagnosis, Exercise, Finding, Play, declare, turned
from course_lib.checks.lesson_05_gradient_averaging import MISSING, zero_or_none
from course_lib.checks.models import model
from course_lib.checks.rules import trace_of

# ---- 10.1 MiniDDP --------------------------------------------------------------------------------

REDUCES = "sync", "backward in no_sync"  # rounds after which the gradients are the mean
LACKS = {"on rank 0": range(1), "but on rank 0": range(1, 99), "on any rank": range(99)}


def train(
    given: list[tuple[Training]], by: Callable[[int], int] = lambda n: n, bare: bool = True,
    sent: Callable[[nn.Module], list[Tensor]] = lambda m: [*m.parameters(), *m.buffers()],
    reduces: Callable[..., bool] = lambda kind, before: kind in REDUCES,
    local: int = 0, newest: bool = False, added: bool = False,
) -> None:  # fmt: skip
    """All begin with rank 0's tensors, and have the mean of all gradients after the rounds that
    reduce. The rest are mistakes; ``local`` of the first parameters are never reduced."""
    jobs = [job for (job,) in given]
    for tensors in zip(*(sent(job.model) for job in jobs), strict=True):
        [t.data.copy_(tensors[0].data) for t in tensors]
    steps = [job.begins() for job in jobs]
    for number, kind in enumerate(jobs[0].rounds):
        old = [[p.grad for p in job.trained()] for job in jobs]
        for job in jobs:
            job.model.zero_grad() if newest and kind in REDUCES else None
            job.passes(job.model, number)
        columns = list(zip(*(job.trained() for job in jobs), strict=True))
        for column in columns[local:] if reduces(kind, jobs[0].rounds[:number]) else ():
            grads = [p.grad for p in column if p.grad is not None]
            for p in column if grads else ():
                mean = torch.stack(grads).sum(0) / by(len(jobs))
                p.grad = mean if bare or p.grad is not None else None
        for job, sgd, before in zip(jobs, steps, old, strict=True):
            for p, g in zip(job.trained(), before, strict=True):
                if added and kind in REDUCES and p.grad is not None and g is not None:
                    p.grad = p.grad + g
            job.ends(number, sgd)


def job(case: Case, rank: int) -> tuple[Training]:
    o, net, source = case.options, model(case, rank), case.random("batch", rank)
    lacks = o.get(MISSING, "").removeprefix("the second layer ")
    batches = [torch.tensor([[source.randrange(-4, 5) for _ in "ab"] for _ in "ab"]) / 8
               for _ in o["rounds"]]  # fmt: skip
    for p in net.parameters():
        p.data /= 32
    without = ("second",) if rank in LACKS.get(lacks, ()) else ()
    batches = [b.to(getattr(torch, case.dtype)) for b in batches]
    return (Training(Net(net), o["rounds"], batches, o["cap_bytes"], without),)


def bucketed(sizes: list[tuple], cap: float, before: bool = False, reset: bool = True):
    """(dtype, bytes) cut into buckets: each closes when it reaches the cap, or before it would be
    passed; another dtype begins another one."""
    out: list[list[int]] = []
    for k, (dtype, size) in enumerate(sizes):
        if not k or dtype != sizes[k - 1][0] or (
            sum(out[-1]) + size > cap if before else
            sum(s for b in out[-1 if reset else 0:] for s in b) >= cap):  # fmt: skip
            out.append([])
        out[-1].append(size)
    return out


def plan(play: Play, order: int = -1, cap: float = 0, before: bool = False) -> list[list[int]]:
    sizes = [(p.dtype, p.nbytes) for p in play.given(0).trained()][::order]
    return bucketed(sizes, cap or play.given(0).cap_bytes, before)


def full(play: Play) -> list[float]:
    """When each bucket is full, in seconds after its round has begun."""
    layers = [m for m in play.given(0).model.children() if isinstance(m, nn.Linear)]
    times = [FORWARD * len(layers) + BACKWARD * (len(layers) - next(
        k for k, m in enumerate(layers) if any(p is q for q in m.parameters())))
        for p in play.given(0).trained()]  # fmt: skip
    late = inf if MISSING in play.case.options else 0.0  # a bucket may wait for finish()
    return [late + max(times.pop() for _ in bucket) for bucket in plan(play)]


def as_planned(play: Play) -> Iterator[Finding]:
    """One all_reduce for each bucket, in their order, when it is full; no call in no_sync."""
    want = [sum(bucket) for bucket in plan(play)]
    for number, kind, rank, began, calls in rounds(play):
        said = ", ".join(f"{e.op} of {e.nbytes} bytes" for e in calls) or "no call"
        said = f"round {number} ({kind}), rank {rank}: {said}"
        if kind not in REDUCES and calls:
            yield Finding("in no_sync", said)
        elif kind in REDUCES and (
            [e.nbytes for e in calls] != want or any("all_reduce" not in e.op for e in calls)
        ):
            yield Finding("calls", f"{said}; the buckets have {want} bytes")
        for e, due in zip(calls, full(play), strict=False):
            if e.issued > began + due + 1e-6:
                yield Finding("late", f"round {number}, rank {rank}: {e.op} of {e.nbytes} bytes is "
                              f"issued after {1e3 * (e.issued - began):.2f} ms, its bucket is full "
                              f"after {1e3 * due:.2f} ms")  # fmt: skip
                break


def sends(*plans: Callable[[Play], list]) -> OfPlay:
    """All rounds that reduce have the calls of one of these plans."""
    return lambda p: only("calls", "late")(p) and any(
        all([e.nbytes for e in calls] == [sum(b) for b in plan(p)]
            for _, kind, *_, calls in rounds(p) if kind in REDUCES) for plan in plans)  # fmt: skip


def after_backward(p: Play) -> bool:
    """Each call comes when the last gradient is there, or later."""
    return only("late")(p) and all(e.issued > began + full(p)[-1] - 1e-6
                                   for *_, began, calls in rounds(p) for e in calls)  # fmt: skip


def trained(world: int, kind: str, cap: int, kinds: str = "sync", lacks: str = "", **rest: Any):
    options = {"model": kind, "cap_bytes": cap, "rounds": tuple(kinds.split(", "))}
    more = {MISSING: f"the second layer {lacks}"} if lacks else {}
    return Case(world, options=options | more, **rest)


def unusual(case: Case) -> set[str]:
    kinds = case.options["rounds"]
    return {name for name, there in {
        "no_sync": "no_sync" in " ".join(kinds), "evaluate": "evaluate" in kinds,
        "several steps": sum(kind in REDUCES for kind in kinds) > 1}.items() if there}  # fmt: skip


two, four, twice, wrong = "two layers", "four layers", "sync, sync", turned(train)
declare(Exercise(
    "10.1", "MiniDDP", train, inputs=job, settle=zero_or_none, tolerance=1e-5, length_is="",
    core=lambda rng: [trained(*o) for o in (
        (2, "one layer", 1000), (2, two, 1), (3, two, 24), (2, two, 16, twice),
        (5, four, rng.randrange(17, 60), twice), (2, two, 24, "no_sync, no_sync, sync, sync"),
        (3, "buffers", 40), (2, "first layer frozen", 8, twice), (4, "a shared weight", 16, twice),
        (2, two, 25, twice, "on rank 0"), (3, four, 30, twice, "but on rank 0"), (4, four, 24))],
    sturdy=lambda rng: [
        trained(1, two, 24, "no_sync, sync, sync"), trained(crowd(rng), two, 24),
        trained(2, "two dtypes", 40, twice), trained(2, two, 24, dtype="float64"),
        *(trained(2, two, 24, r) for r in ("forward in no_sync, sync", "backward in no_sync, sync",
                                           "evaluate, sync, evaluate")),
        trained(3, four, 24, "sync", "on any rank")],
    special=unusual, fits=lambda case: case.world > 1, smaller=lambda case: [], budget=[as_planned],
    mistakes=[
        wrong("no-broadcast", "The ranks' models differ from the start. Whose parameters and "
              "buffers should all have?", {"sent": lambda m: []},
              {"sent": lambda m: [*m.parameters()]}),
        wrong("sum", "Gradients are added up over the ranks, and never divided.", by=lambda n: 1),
        wrong("divided-twice", "Divided by the number of ranks twice.", by=lambda n: n * n),
        wrong("stays-local", "After finish() each rank has its own gradients in .grad. (A hook "
              "gets the parameter, not the gradient.) Who writes the mean there?",
              reduces=lambda *_: False),
        wrong("first-step-only", "The first step has the mean, later ones each rank's own "
              "gradients. What is counted in one backward pass has to begin anew in the next.",
              reduces=lambda kind, before: kind in REDUCES and not set(before) & set(REDUCES)),
        wrong("never-again", "After a round in no_sync no gradient travels. What does the block "
              "restore when it ends?",
              reduces=lambda kind, before: kind in REDUCES and "no_sync" not in before),
        wrong("always", "Gradients travel though the forward pass ran in no_sync. (finish() comes "
              "after the block: what does it know of it?)", reduces=lambda *_: True),
        wrong("newest-only", "That is the mean of the newest gradients. The passes in no_sync have "
              "left more in .grad, which has to be averaged, too.", {"newest": True},
              {"newest": True, "added": True}),
        wrong("none-stays", "A rank that has not used a parameter has no gradient for it, and the "
              "others have the mean: its weights will fall behind.", bare=False),
        wrong("last-bucket", "The first parameters of the model keep each rank's own gradients. "
              "Their bucket is the last, and need not reach the cap.", {"local": 1}, {"local": 2}),
        wrong("backward-counts", "The forward pass is what counts: a round is quiet if, and only "
              "if, its forward pass ran in no_sync.",
              reduces=lambda kind, before: kind in ("sync", "forward in no_sync")),
    ],
    diagnoses=[
        Diagnosis("compares-tensors", "`in` and index() compare tensors number by number. A set, a "
                  "dict or `is` asks whether it is the same parameter.",
                  says("Boolean value of Tensor")),
        Diagnosis("not-a-context", "What no_sync() returns does not work in a with statement.",
                  says("context manager protocol")),
        Diagnosis("frozen", "A frozen parameter has no gradient, so it takes no hook.",
                  says("hook on a tensor that doesn't require gradient")),
        Diagnosis("not-all-written", "It calls a method that is not written yet.", lambda p: p.done
                  and any(isinstance(s.returned, str) for s in p.seen[0])),
        Diagnosis("not-flushed", "A rank on which a parameter is unused issues fewer calls than "
                  "the others. Which buckets are still open when backward has ended?", lambda p:
                  says("barrier")(p) and found("mismatch")(p) and MISSING in p.case.options),
        Diagnosis("order-by-rank", "Two ranks reduce different buckets in one call. On the rank "
                  "that lacks a gradient another bucket is full first: who waits for whose turn?",
                  lambda p: found("mismatch")(p) and MISSING in p.case.options),
        Diagnosis("in-no-sync", "There are calls in a round whose forward pass ran in no_sync, or "
                  "which has no backward pass.", lambda p: not p.findings
                  and found("in no_sync")(p)),
        Diagnosis("one-bucket", "All gradients go in one call; in several buckets the first could "
                  "leave early.", sends(lambda p: plan(p, 1, inf), lambda p: plan(p, -1, inf))),
        Diagnosis("one-each", "Each parameter has a call, and a latency, of its own.",
                  sends(lambda p: plan(p, 1, 1), lambda p: plan(p, -1, 1))),
        Diagnosis("forward-order", "The buckets begin with the first layers. Which gradients are "
                  "there first?", sends(lambda p: plan(p, 1), lambda p: plan(p, 1)[::-1])),
        Diagnosis("closes-too-soon", "A bucket closes before it would pass the cap, not when it "
                  "has reached it.", sends(lambda p: plan(p, before=True))),
        Diagnosis("calls", "One all_reduce for each bucket, in their order, is asked for.",
                  lambda p: p.done and not p.findings and found("calls")(p)),
        Diagnosis("after-backward", "No bucket is issued before the last gradient is there. Some "
                  "were full before: what could issue them then?", after_backward),
        Diagnosis("waits-in-hook", "A bucket is issued later than it is full: backward has stood "
                  "still. Which call makes it wait, and when is the mean needed?", only("late")),
    ],
))  # fmt: skip

# ---- 10.2 make_buckets ---------------------------------------------------------------------------


def some_parameters(case: Case, rank: int) -> tuple[list[nn.Parameter], int]:
    """One for each size, filled with its number: 4 are four floats, 4f frozen, 4d of float64."""
    words = case.options["sizes"].split()
    return [nn.Parameter(torch.full((int(word.strip("fd")),), k + 1.0, dtype=torch.float64 if "d"
                                    in word else torch.float32), requires_grad="f" not in word)
            for k, word in enumerate(words)], case.options["cap_bytes"]  # fmt: skip


def cut(
    given: list[tuple], order: int = -1, frozen: bool = False, before: bool = False, more: int = 0,
    mixed: bool = False, item: int = 0, lost: bool = False, reset: bool = True,
    then: Callable[[list], list] = lambda made: made,
) -> list:  # fmt: skip
    """Reverse order, closed when the cap is reached or the dtype changes. The rest are mistakes."""
    [(params, cap)] = given
    left = [p.detach() for p in params if p.requires_grad or frozen][::order]
    sizes = [(None if mixed else p.dtype, p.numel() * (item or p.itemsize)) for p in left]
    queue = iter(left)
    made = [[next(queue) for _ in b] for b in bucketed(sizes, cap + more, before, reset)]
    return [then([b for b in made if not lost or sum(p.nbytes for p in b) >= cap])]


def parameters(*cases: tuple[str, int]) -> list[Case]:
    return [Case(1, options={"sizes": sizes, "cap_bytes": cap}) for sizes, cap in cases]


wrong = turned(cut)
declare(Exercise(
    "10.2", "make_buckets", cut, inputs=some_parameters, in_ranks=False, free=["left"],
    core=lambda rng: parameters(
        ("4", 100), ("2 4 2 4", 24), ("2 4 2 4", 25), ("1 1 1 1 1", 8), ("1 1 9 1 1", 12),
        ("2 4f 2 4", 24), (" ".join(str(rng.randrange(1, 9)) for _ in range(9)), 30)),
    sturdy=lambda rng: parameters(("", 8), ("2f 2f", 8), ("2 2 2d 2d", 16), ("2 2d 2 2d", 100)),
    smaller=lambda case: [], length_is="",
    mistakes=[
        wrong("forward-order", "The first bucket holds the first parameters of the model. Their "
              "gradients come last.", *({"order": 1} | also for also in (
                  {}, {"item": 1}, {"before": True}, {"more": 1}, {"frozen": True}))),
        wrong("closes-too-soon", "A bucket closes before a parameter would take it past the cap. "
              "It should take that one too, then close.", before=True),
        wrong("closes-too-late", "A bucket of exactly cap_bytes has reached the cap.", more=1),
        wrong("elements", "The cap is in bytes; something else is counted.", {"item": 1},
              {"item": 8}, {"item": 1, "more": 1}, {"item": 1, "before": True}),
        wrong("frozen", "A frozen parameter has no gradient, and needs no bucket.", frozen=True),
        wrong("mixed", "A bucket holds two dtypes, and cannot become one flat tensor.", mixed=True),
        wrong("last-lost", "The last bucket is missing. Must it reach the cap?", lost=True),
        wrong("turned-late", "The list of buckets is reversed, and each was filled in the order of "
              "the model: begin with the last parameter.", order=1, then=lambda made: made[::-1]),
        wrong("never-reset", "After the first full bucket every parameter gets its own. What is "
              "counted anew when a bucket closes?", reset=False)],
    diagnoses=[Diagnosis("empty-bucket", "A bucket is empty.", lambda p: any(
        [] in s.returned for s in p.seen[0] if isinstance(s.returned, list)))],
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


def normalise(
    given: list[tuple[BothWays]], sees: Callable[..., float] = lambda own, n: 1, var: str = "all",
    mean: str = "all", own: bool = False, added: bool = False, unbiased: bool = False,
) -> None:  # fmt: skip
    """One process, all batches: values, and the gradients of all ranks' losses together, but of
    weight and bias each rank's own. The rest are mistakes; ``sees`` is what autograd follows."""
    jobs = [job for (job,) in given]
    leaves = [{k: t.double().requires_grad_() for k, t in job.given.items()} for job in jobs]
    total = torch.zeros((), dtype=torch.float64)
    for rank, (one, leaf) in enumerate(zip(jobs, leaves, strict=True)):
        follows = [sees(k == rank, len(jobs)) for k in range(len(jobs)) if not own or k == rank]
        flat = [(f * m["x"] + (1 - f) * m["x"].detach()).transpose(0, 1).flatten(1) for f, m in zip(
            follows, [leaf] if own else leaves, strict=True)]  # fmt: skip
        whole, squares = torch.cat(flat, 1), torch.stack([t.square().mean(1) for t in flat])
        means = torch.stack([t.mean(1) for t in flat])
        m = whole.mean(1) if mean == "all" else means.mean(0)
        v = {"all": whole.square().mean(1) - whole.mean(1).square(),
             "means": (squares - means.square()).mean(0), "squares": squares.mean(0) - m.square(),
             "centred": torch.stack([(t - (m if f else m.detach())[:, None]).square().mean(1)
                                     for f, t in zip(follows, flat, strict=True)]).mean(0)}[
                 var] * (whole.shape[1] / (whole.shape[1] - 1) if unbiased else 1)  # fmt: skip
        rest = leaf["x"].transpose(1, -1)
        out = ((rest - m) * (v + one.eps).rsqrt() * leaf["weight"] + leaf["bias"]).transpose(1, -1)
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
            yield Finding("bytes", f"{said}: with {numbers} numbers")


def norms(*cases: tuple, **rest: Any) -> list[Case]:
    """A case for each (channels, batches), perhaps with more."""
    return [Case(len(rows), channels, options={"batches": rows, **dict(*more)}, **rest)
            for channels, rows, *more in cases]  # fmt: skip


wrong = turned(normalise)
declare(Exercise(
    "10.3", "sync_batch_norm", normalise, inputs=batch, tolerance=1e-5, length_is="channels",
    core=lambda rng: norms((1, (2, 2)), (2, (3, 3, 3)), (1, (1, 3)), (2, (4, 1, 2)),
                           (3, (1, 1, 1, 1)), (2, (2, 3), {"L": (3,)}), (3, (1, 5, 2, 3, 1)),
                           (rng.randrange(2, 6), (rng.randrange(2, 6), rng.randrange(2, 6)))),
    sturdy=lambda rng: [*norms((2, (4,)), (2, (0, 3)), (2, (2, 0, 3), {"L": (2,)}),
                               (2, (1,) * crowd(rng)), (2, (3, 2), {"eps": 0.5})),
                        *norms((2, (2, 3)), dtype="float64")],
    smaller=lambda case: [], budget=[one_each_way], fits=lambda case: case.world > 1,
    special=lambda case: {name for name, there in {
        "an empty batch": 0 in case.options["batches"], "matrix": "L" in case.options,
        "batches of unequal size": len(set(case.options["batches"])) > 1}.items() if there},
    mistakes=[
        wrong("local", "Each rank uses the statistics of its own batch, as plain BatchNorm does.",
              own=True),
        wrong("variances-averaged", "The ranks' variances are averaged. Batches differ in their "
              "means as well, and that is part of the variance.", {"mean": "each", "var": "means"},
              {"var": "means"}),
        wrong("counts-ignored", "The ranks' means are averaged, though their batches differ in "
              "size: add up sums and counts, then divide.", mean="each", var="squares"),
        wrong("unbiased", "BatchNorm normalises by the variance with n below, not n − 1.",
              unbiased=True),
        wrong("constant-statistics", "The gradient of x takes mean and variance for constants. "
              "They depend on every sample.", sees=lambda own, n: 0),
        wrong("own-path-only", "The gradient of x lacks what it does to other ranks' outputs. (A "
              "plain all_reduce has no backward: autograd takes others' sums for constants.)",
              {"sees": lambda own, n: own}, {"sees": lambda own, n: own, "var": "centred",
                                             "mean": "each"}),
        wrong("backward-averaged", "The backward pass averages over the ranks. What x gets is the "
              "gradient of the sum of all ranks' losses.", sees=lambda own, n: 1 / n),
        wrong("weights-added", "The gradients of weight and bias are added up over the ranks. They "
              "stay local: DDP averages them.", added=True),
    ],
    diagnoses=[
        Diagnosis("statistics-apart", "Sums, squares and counts can travel in one tensor: one "
                  "all_reduce forward, one backward.", only("calls")),
        Diagnosis("too-many-numbers", "Three numbers a channel are enough each way.",
                  only("bytes")),
    ],
))  # fmt: skip
