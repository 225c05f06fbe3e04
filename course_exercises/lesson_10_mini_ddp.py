"""Lesson 10: write DistributedDataParallel, its buckets, and BatchNorm over all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from course_exercises import lesson_05_gradient_averaging as by_hand
from course_exercises.models import WORDS, model
from course_lib.beside.driven import BACKWARD, FORWARD, REDUCES, BothWays, Net, Training
from course_lib.checks.cases import Case, crowd, drawn
from course_lib.checks.diagnoses import OfPlay, found, only, says
from course_lib.checks.exercise import Diagnosis, Exercise, Finding, Play, declare, turned
from course_lib.checks.rules import trace_of
from course_lib.trace import Event


def rounds(play: Play) -> Iterator[tuple[int, str, int, float, list[Event]]]:
    """Of each round, from 1: its kind, a rank, when it began, and the rank's calls in it."""
    for rank in range(play.case.world):
        parts: list[tuple[float, list[Event]]] = []
        for e in play.run.trace.of(rank) if play.run else ():
            if e.op == "barrier" and not e.line:  # no line of the answer
                parts.append((e.completed or e.issued, []))
            elif parts:
                parts[-1][1].append(e)
        for number, (kind, part) in enumerate(zip(play.given(0).rounds, parts, strict=False), 1):
            yield number, kind, rank, *part


def buckets(
    params: Iterable[nn.Parameter],
    cap: float,
    order: Callable = reversed,
    size: Callable[[Tensor], int] = attrgetter("nbytes"),
    closes: Callable[[list[int], int, float], bool] = lambda held, more, cap: held[-1] >= cap,
    after: Callable[[list, float], list] = lambda made, cap: made,
) -> list[list[nn.Parameter]]:
    """In reverse order; a bucket closes when it reaches the cap, or the dtype changes. The rest are
    mistakes."""
    out: list[list[nn.Parameter]] = []
    for p in order([p for p in params if p.requires_grad]):
        held = [sum(map(size, bucket)) for bucket in out]
        if not out or p.dtype != out[-1][-1].dtype or closes(held, size(p), cap):
            out.append([])
        out[-1].append(p)
    return after(out, cap)


FORWARDS, NUMEL = {"order": iter}, {"size": Tensor.numel}
BEFORE = {"closes": lambda held, more, cap: held[-1] + more > cap}
BUCKETS: list[tuple] = [  # what 10.2 shows by the sizes of its calls, and 10.1 by itself
    (
        "elements",
        "The cap is in bytes, and a number may have 2, 4 or 8; something else is counted.",
        NUMEL,
        NUMEL | BEFORE,
        {"size": lambda p: 4 * p.numel()},
    ),
    (
        "forward-order",
        "The first bucket holds the first parameters of the model. Their gradients come last.",
        FORWARDS,
        FORWARDS | NUMEL,
        FORWARDS | BEFORE,
    ),
    (
        "turned-late",
        "Buckets are filled from the first parameter on, and turned round too late.",
        FORWARDS | {"after": lambda made, _: made[::-1]},
        FORWARDS | {"after": lambda made, _: [bucket[::-1] for bucket in made[::-1]]},
    ),
    (
        "closes-too-soon",
        "A bucket closes before a parameter would take it to the cap or past it. "
        "It should take that one too, then close.",
        BEFORE,
        {"closes": lambda held, more, cap: held[-1] + more >= cap},
    ),
    (
        "closes-too-late",
        "A bucket of exactly cap_bytes has reached the cap.",
        {"closes": lambda held, more, cap: held[-1] > cap},
    ),
    (
        "no-cap",
        "The cap decides nothing: all parameters lie in one bucket, or each in its own.",
        {"closes": lambda *_: False},
        {"closes": lambda *_: True},
    ),
    (
        "size-kept",
        "After a full bucket the next one begins with its bytes, and not with none.",
        {"closes": lambda held, more, cap: sum(held) >= cap},
    ),
]

# ---- 10.2 MiniDDP --------------------------------------------------------------------------------


def train(
    given: list[tuple[Training]],
    start: Callable[[list], None] = by_hand.spread,
    reduces: Callable[[str], bool] = REDUCES.__contains__,
    brings: Callable[..., Tensor | None] = lambda p, job: p.grad,
    which: Callable[[Training], slice] = lambda job: slice(None),
    early: bool = False,
    **mean: Any,
) -> None:
    """Lesson 05 in rounds: all begin with rank 0's tensors, and average the gradients of the rounds
    that reduce. The rest are mistakes."""
    jobs, models = [job for (job,) in given], [(job.model,) for (job,) in given]
    start(models)
    steps = [job.begins() for job in jobs]
    for number, kind in enumerate(jobs[0].rounds):
        for job in jobs:
            job.passes(job.model, number)
            for p in job.trained():
                if p.grad is not None and reduces(kind):
                    p.grad = brings(p, job)
                elif p.grad is not None and early:
                    p.grad = p.grad / len(jobs)
        if reduces(kind):
            by_hand.average(models, which=which(jobs[0]), **mean)
        for job, sgd in zip(jobs, steps, strict=True):
            job.ends(number, sgd)


def job(case: Case, rank: int) -> tuple[Training]:
    o, net = case.options, model(case, rank)
    for p in net.parameters():
        p.data /= 32
    without = ("second",) if str(rank) in o.get(by_hand.MISSING, "") else ()
    batches = [drawn(case, f"batch {k} {rank}", 2, 2) / 4 for k, _ in enumerate(o["rounds"])]
    layers = Net(net, "swapped" in o["model"])
    return (Training(layers, o["rounds"], batches, o["cap_bytes"], without),)


def in_bytes(job: Training, **knobs: Any) -> list[int]:
    return [sum(p.nbytes for p in b) for b in buckets(job.trained(), job.cap_bytes, **knobs)]


def as_planned(play: Play) -> Iterator[Finding]:
    """One all_reduce for each bucket, in order, when it is full; no call in no_sync."""
    job = play.given(0)
    layers = [m for _, m in job.model.run if isinstance(m, nn.Linear)][::-1]
    before = float("inf") if by_hand.MISSING in play.case.options else FORWARD * len(layers)
    there = {p: before + BACKWARD * k for k, m in enumerate(layers, 1) for p in m.parameters()}
    full = [max(there[p] for p in bucket) for bucket in buckets(job.trained(), job.cap_bytes)]
    plan = [*accumulate(full, max)]  # none goes before those before it
    for number, kind, rank, began, calls in rounds(play):
        want = in_bytes(job) if kind in REDUCES else []
        sizes, said = [e.nbytes for e in calls], f"round {number} ({kind}), rank {rank}: "
        if sizes != want or any("all_reduce" not in e.op for e in calls):
            got = ", ".join(f"{e.op} of {e.nbytes} bytes" for e in calls) or "no call"
            ids = [
                "calls",
                *(
                    id
                    for id, _, *ways in BUCKETS
                    if want and any(sizes == in_bytes(job, **way) for way in ways)
                ),
            ]
            text = f"{said}{got}; the buckets to reduce have {want} bytes"
            yield from (Finding(id, text) for id in ids)
        for e, due in zip(calls, plan if sizes == want else (), strict=False):
            if (after := e.issued - began) > due + 1e-6:
                at_once = all(e.issued > began + plan[-1] - 1e-6 for e in calls)
                how = "after backward" if at_once else "late" if after > due + 1e-3 else "waits"
                yield Finding(
                    how if number == 1 else "not again",
                    f"{said}{e.op}"
                    f" of {e.nbytes} bytes is issued after {1e3 * after:.2f} ms; its "
                    f"bucket could go after {1e3 * due:.2f} ms",
                )
                break


def by_hand_alone(play: Play) -> Iterator[Finding]:
    """What travels is issued at lines of the answer's, and not inside of torch's own wrapper."""
    calls = [e for e in trace_of(play).events if e.op != "barrier"]
    inside = [e for e in calls if e.line is None]
    if inside and len(inside) < len(calls):  # else lines cannot be found here at all
        e = inside[0]
        text = f"rank {e.rank}: {e.op} of {e.nbytes} bytes is called inside of torch"
        yield Finding("torch's own", text)


def without_zeros(play: Play) -> bool:
    """A call of other size than any bucket, where a gradient is missing."""
    whole = in_bytes(play.given(0))
    sizes = {e.nbytes for e in trace_of(play).events if e.op.startswith("all_reduce")}
    missing = by_hand.MISSING in play.case.options
    return missing and found("Mismatch")(play) and not sizes <= {*whole}


def over_plan(*one_of: str) -> OfPlay:
    return lambda p: not p.findings and found(*one_of)(p)


def trained(world: int, kind: str, cap: int, kinds: str = "sync", lacks: str = "", **rest: Any):
    options = {"model": kind, "cap_bytes": cap, "rounds": tuple(kinds.split(", "))}
    return Case(world, options=options | ({by_hand.MISSING: lacks} if lacks else {}), **rest)


# features of rounds, by what stands in their names
ROUNDS = {
    "with all layers": (
        "a layer is used that one rank did not use the time before",
        "What has counted or filled up then, and is still there?",
    ),
    "no_sync": (
        "a pass lies in no_sync",
        "Which pass settles whether gradients travel? And what "
        "does a block leave behind: its flag, counts, gradients?",
    ),
    "evaluate": ("a forward pass has no backward", "What does forward() count on?"),
    "between": (
        "a forward pass under no_grad comes between a forward pass and its backward",
        "What does forward() begin anew that the pass under way still needs?",
    ),
    "half in no_sync": (
        "half of a pass lies in no_sync",
        "The forward half decides whether gradients travel; where backward runs does not matter.",
    ),
    "nested": (
        "a no_sync block lies inside another",
        "When it ends, what was before it has to be there again.",
    ),
    "kept gradient": (
        "no_sync has left a gradient that the next pass does not add to",
        "What a rank contributes is all that .grad holds, also where no hook ran.",
    ),
}
SEVERAL = {
    "several steps": (
        "there is more than one step",
        "What does the second step find that the first one has left?",
    ),
}
two, four, twice, wrong = "two layers", "four layers", "sync, sync", turned(train)
declare(
    Exercise(
        "10.2",
        "MiniDDP",
        train,
        inputs=job,
        words=WORDS | ROUNDS | SEVERAL,
        settle=by_hand.zero_or_none,
        tolerance=1e-5,
        length_is="",
        core=lambda rng: [
            trained(*o)
            for o in (
                (2, "one layer", 1000),
                (2, two, 8),
                (3, two, 16),
                (2, two, 16, twice),
                (5, four, rng.randrange(17, 60), twice),
                (2, two, 16, "no_sync, no_sync, sync, sync"),
                (3, "buffers", 40),
                (2, "first layer frozen", 8, twice),
                (4, "a shared weight", 16, twice),
                (2, "two swapped", 16),
                (2, two, 25, twice, "on rank 0"),
                (3, four, 25, "sync, sync with all layers, sync", "on ranks 1, 2"),
            )
        ],
        sturdy=lambda rng: [
            trained(1, two, 16, "no_sync, sync, sync"),
            trained(crowd(rng), two, 16),
            trained(2, "another dtype", 60, twice),
            trained(2, two, 16, dtype="float64"),
            *(
                trained(2, two, 16, r)
                for r in (
                    "evaluate, sync, evaluate",
                    "evaluate between",
                    "forward half in no_sync, sync",
                    "backward half in no_sync, sync",
                    "no_sync nested, sync",
                )
            ),
            trained(3, four, 25, "sync", "on ranks 0, 1, 2"),
            trained(2, two, 16, "no_sync kept gradient, sync", "on rank 0"),
        ],
        rules=[by_hand_alone],
        budget=[as_planned],
        special=lambda case: (
            {name for name in ROUNDS if name in " ".join(case.options["rounds"])}
            | ({"several steps"} if sum(map(REDUCES.count, case.options["rounds"])) > 1 else set())
        ),
        mistakes=[
            *(wrong(*known) for known in by_hand.AVERAGES),
            wrong(
                "no-broadcast",
                "The ranks' models differ from the start. Whose parameters and "
                "buffers should all have?",
                start=lambda models: None,
            ),
            wrong(
                "parameter",
                "What the ranks average is the parameter itself. A hook is given the "
                "parameter: where is its gradient?",
                brings=lambda p, job: p.detach().clone(),
            ),
            wrong(
                "too-early",
                "The last gradient of each bucket is not in the mean: register_hook "
                "calls back before .grad has it.",
                brings=lambda p, job: (
                    torch.zeros_like(p)
                    if any(p is last for *_, last in buckets(job.trained(), job.cap_bytes))
                    else p.grad
                ),
            ),
            wrong(
                "stays-local",
                "After finish() each .grad holds its rank's own gradient. Are they "
                "sent (a hook gets the parameter)? Is the mean written?",
                which=lambda _: slice(0),
            ),
            wrong(
                "always",
                "Gradients travel though the forward pass ran in no_sync. Hooks and "
                "finish() come later: what do they ask?",
                reduces=lambda kind: True,
            ),
            wrong(
                "divided-early",
                "What adds up in no_sync is divided by the number of ranks, and "
                "later divided again. When is it settled that a pass reduces?",
                early=True,
            ),
            wrong(
                "last-bucket",
                "The last bucket does not reach the cap, and its gradients stay as they are.",
                which=lambda job: slice(
                    len(buckets(job.trained(), job.cap_bytes)[-1])
                    * (in_bytes(job)[-1] < job.cap_bytes),
                    None,
                ),
            ),
        ],
        diagnoses=[
            Diagnosis(
                "torchs-own",
                "No line of the answer issues what averages the gradients: a "
                "wrapper of torch's does it. That wrapper is what you build here.",
                found("torch's own"),
            ),
            Diagnosis(
                "compares-tensors",
                "`in` and index() compare numbers. A set, a dict or `is` "
                "asks whether it is the same parameter.",
                says("Boolean value of Tensor"),
            ),
            Diagnosis(
                "not-all-written",
                "It calls a method that is not written yet.",
                lambda p: p.done and any(isinstance(s.returned, str) for s in p.seen[0]),
            ),
            Diagnosis(
                "no-zeros",
                "A rank without a gradient reduces less than the others, whose "
                "bucket has one. A missing gradient takes its place in the bucket, as zeros.",
                without_zeros,
            ),
            Diagnosis(
                "order-by-rank",
                "Two ranks reduce different buckets in one call, or one makes "
                "fewer calls. On a rank that lacks a gradient some bucket is never full: which "
                "may go before it, and what issues those that are open when backward has ended?",
                lambda p: found("Mismatch")(p) and by_hand.MISSING in p.case.options,
            ),
            *(Diagnosis(id, hint, over_plan(id)) for id, hint, *_ in BUCKETS),
            Diagnosis(
                "calls",
                "Compare the calls with the buckets: each is reduced once, whole, in "
                "order. Nothing else is called, and nothing for a forward pass in no_sync.",
                lambda p: over_plan("calls")(p) and WORDS.get(p.case.options["model"], ()) is None,
            ),
            Diagnosis(
                "after-backward",
                "No bucket is issued before the last gradient is there. Some "
                "were full before: what could issue them then?",
                over_plan("after backward"),
            ),
            Diagnosis(
                "waits-in-hook",
                "A full bucket is issued late: backward has stood still. Which "
                "call waits, and when is the mean needed?",
                over_plan("waits"),
            ),
            Diagnosis(
                "late",
                "A bucket is full, and backward goes on to another layer before it is "
                "issued. Which event issues it?",
                only("late", "after backward"),
            ),
            Diagnosis(
                "counts-left",
                "Buckets go late here, and in a first round they do not: what "
                "hooks have counted before still counts.",
                only("not again"),
            ),
        ],
    )
)

# ---- 10.1 make_buckets ---------------------------------------------------------------------------


SIZES = {
    "frozen": ("a parameter is frozen", "It has no gradient, no bucket, and no bytes in one."),
    "another dtype": (
        "the next parameter has another dtype",
        "A bucket closes there for good. What does the new one begin with?",
    ),
    "a frozen one between": (
        "a frozen parameter lies between others of another dtype",
        "It is not one of those that are divided, and closes nothing.",
    ),
}


def some_parameters(case: Case, rank: int) -> tuple[list[nn.Parameter], int]:
    """One for each size, filled with its number: 4 are four floats, 4f frozen, 4d of float64."""
    words = case.options["sizes"].split()
    return [
        nn.Parameter(
            torch.full(
                (int(word.strip("fd")),),
                k + 1.0,
                dtype=torch.float64 if "d" in word else torch.float32,
            ),
            requires_grad="f" not in word,
        )
        for k, word in enumerate(words)
    ], case.options["cap_bytes"]


def cut(given: list[tuple], **knobs: Any) -> list:
    return [[[p.detach() for p in bucket] for bucket in buckets(*given[0], **knobs)]]


def parameters(*cases: tuple[str, int]) -> list[Case]:
    return [Case(1, options={"sizes": sizes, "cap_bytes": cap}) for sizes, cap in cases]


wrong = turned(cut)
declare(
    Exercise(
        "10.1",
        "make_buckets",
        cut,
        inputs=some_parameters,
        words=SIZES,
        in_ranks=False,
        free=["left"],
        core=lambda rng: parameters(
            ("4", 100),
            ("2 4 2 4", 24),
            ("2 4 2 4", 25),
            ("1 1 1 1 1", 8),
            ("1 1 9 1 1", 12),
            ("2 4f 2", 20),
            (" ".join(str(rng.randrange(1, 9)) for _ in range(9)), 30),
        ),
        sturdy=lambda rng: parameters(("", 8), ("2f 2f", 8), ("2d 2 2 2d 3d", 24), ("2 2df 2", 24)),
        length_is="",
        mistakes=[
            *(wrong(*known) for known in BUCKETS),
            wrong(
                "last-lost",
                "The last bucket is missing. Must it reach the cap?",
                after=lambda made, cap: [
                    bucket for bucket in made if sum(p.nbytes for p in bucket) >= cap
                ],
            ),
        ],
        diagnoses=[
            Diagnosis(
                "empty-bucket",
                "A bucket is empty. At what moment is one begun?",
                lambda p: p.done and [] in [*(p.got(0).returned or ())],
            )
        ],
        special=lambda case: (
            {"a frozen one between"}
            if "df" in case.options["sizes"]
            else {
                name
                for name, mark in (("frozen", "f"), ("another dtype", "d"))
                if mark in case.options["sizes"]
            }
        ),
    )
)

# ---- 10.3 sync_batch_norm ------------------------------------------------------------------------


POSITIONS = {
    "positions": ("x has a third dimension", "Each position along L is a sample of its channel."),
}


def batch(case: Case, rank: int) -> tuple[BothWays]:
    """Samples are high and low in turn: of numbers that lie close together, float32 squares keep
    too few digits to tell a right answer's gradients from a wrong one's.
    """
    sizes = case.options["batches"]
    shape = (sizes[rank], case.length, *case.options.get("L", ()))
    x, upstream = (drawn(case, f"{name} {rank}", *shape) for name in ("x", "dy"))
    weight, bias = (drawn(case, name, case.length) for name in ("weight", "bias"))
    turn = torch.arange(sizes[rank]) + sum(sizes[:rank])
    x += (turn % 2 * 6 - 3).view(-1, *[1] * (x.dim() - 1))
    given = {"x": x + rank / 2, "weight": weight + 3, "bias": bias}
    return (BothWays(given, case.options.get("eps", 1e-5), upstream),)


def normalise(
    given: list[tuple[BothWays]],
    added: tuple[str, ...] = (),
    within: bool = False,
    share: Callable = lambda n, k, rank: 1 / n.sum(),
    path: Callable = lambda n, k, rank: 1,
    by: Callable = lambda mean, variance, eps, n: (mean, (variance + eps).rsqrt()),
) -> None:
    """One process, all batches: values, and the gradients of all ranks' losses together, but of
    weight and bias each rank's own. The rest are mistakes: in the ``share`` that batch k, one of
    sizes n, has in a rank's statistics, and in what finds the ``path`` back to it."""
    jobs = [job for (job,) in given]
    leaves = [{k: t.double().requires_grad_() for k, t in job.given.items()} for job in jobs]
    batches = [leaf["x"].transpose(0, 1).flatten(1) for leaf in leaves]
    n = torch.tensor([b.shape[1] for b in batches], dtype=torch.float64)
    outputs = []
    for rank, (one, leaf) in enumerate(zip(jobs, leaves, strict=True)):
        parts = [
            (share(n, k, rank), b.detach() + path(n, k, rank) * (b - b.detach()))
            for k, b in enumerate(batches)
            if n[k]
        ]
        mean = sum(part * b.sum(1) for part, b in parts)
        less = sum(part * b.mean(1) * b.sum(1) for part, b in parts) if within else mean.square()
        variance = sum(part * b.square().sum(1) for part, b in parts) - less
        centre, scale = by(mean, variance, one.eps, n.sum())
        z = (leaf["x"].transpose(1, -1) - centre) * scale
        outputs.append((z * leaf["weight"] + leaf["bias"]).transpose(1, -1))
        one.noted["output"] = outputs[-1].detach().to(one.upstream.dtype)
    torch.stack([*map(lambda out, job: (out * job.upstream).sum(), outputs, jobs)]).sum().backward()
    for one, leaf in zip(jobs, leaves, strict=True):
        for name in leaf:
            grads: Any = [m[name].grad for m in (leaves if name in added else [leaf])]
            one.noted[f"{name}.grad"] = sum(grads).to(one.upstream.dtype)


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
    return [
        Case(len(rows), channels, options={"batches": rows, **dict(*more)}, **rest)
        for channels, rows, *more in cases
    ]


wrong, EVENLY = turned(normalise), {"share": lambda n, k, rank: 1 / n[k] / len(n)}
declare(
    Exercise(
        "10.3",
        "sync_batch_norm",
        normalise,
        inputs=batch,
        words=WORDS | POSITIONS,
        tolerance=1e-5,
        length_is="channels",
        core=lambda rng: norms(
            (1, (2, 2)),
            (2, (3, 3, 3)),
            (1, (1, 3)),
            (2, (4, 1, 2)),
            (3, (1, 1, 1, 1)),
            (2, (2, 3), {"L": (3,)}),
            (2, (3, 2), {"eps": 0.5}),
            (rng.randrange(2, 6), (rng.randrange(2, 6), rng.randrange(2, 6))),
        ),
        sturdy=lambda rng: [
            *norms(
                (2, (4,)),
                (2, (0, 3)),
                (2, (2, 0, 3), {"L": (2,)}),
                (2, (1,) * crowd(rng)),
                (3, (1, 5, 2, 3, 1)),
            ),
            *norms((2, (2, 3)), dtype="float64"),
        ],
        budget=[one_each_way],
        blank=False,
        special=lambda case: {
            name
            for name, there in {
                "an empty batch": 0 in case.options["batches"],
                "positions": "L" in case.options,
                "batches of unequal size": len(set(case.options["batches"])) > 1,
            }.items()
            if there
        },
        mistakes=[
            wrong(
                "local",
                "Each rank uses the statistics of its own batch, as plain BatchNorm does.",
                share=lambda n, k, rank: (k == rank) / n[k],
            ),
            wrong(
                "variances-averaged",
                "The ranks' variances are averaged. How far apart their means "
                "are belongs to it, too.",
                {"within": True},
                {"within": True, **EVENLY},
            ),
            wrong(
                "counts-ignored",
                "Each sample counts the same, whichever rank has it: sums and "
                "counts are added up over the ranks, and divided once.",
                EVENLY,
                *({"share": lambda n, k, rank, s=s: 1 / n[rank] / len(n) ** s} for s in (0, 1)),
            ),
            wrong(
                "unbiased",
                "BatchNorm normalises by the variance with n below, not n − 1.",
                by=lambda mean, v, eps, n: (mean, (v * n / (n - 1) + eps).rsqrt()),
            ),
            wrong(
                "root",
                "x − mean is divided by √(variance + eps): eps counts once, under the root.",
                *(
                    {"by": lambda mean, v, eps, n, less=less: (mean, 1 / less(v, eps))}
                    for less in (lambda v, eps: v.sqrt(), lambda v, eps: v.sqrt() + eps, torch.add)
                ),
            ),
            wrong(
                "constant-statistics",
                "The gradient of x takes the mean, the variance or both for "
                "constants. They depend on every sample.",
                {"path": lambda n, k, rank: 0},
                {"by": lambda mean, v, eps, n: (mean.detach(), (v + eps).rsqrt())},
                {"by": lambda mean, v, eps, n: (mean, (v.detach() + eps).rsqrt())},
            ),
            wrong(
                "own-path-only",
                "The gradient of x lacks what it does to other ranks' outputs. (A "
                "plain all_reduce has no backward: autograd takes others' sums for constants.)",
                {"path": lambda n, k, rank: k == rank},
                {"path": lambda n, k, rank: (k == rank) * n.sum() / n[k]},
            ),
            wrong(
                "path-divided",
                "What comes to x through mean and variance has the wrong size. It is "
                "the sum over all ranks, divided by the number of all samples, once.",
                {"path": lambda n, k, rank: 1 / len(n)},
                {"path": lambda n, k, rank: n.sum() / n[k]},
            ),
            wrong(
                "weights-added",
                "A gradient of weight or bias is added up over the ranks. They stay "
                "local: DDP averages them.",
                *({"added": names} for names in (("weight", "bias"), ("weight",), ("bias",))),
            ),
        ],
        diagnoses=[
            Diagnosis(
                "statistics-apart",
                "Sums, squares and counts can travel in one tensor: one "
                "all_reduce forward, one backward.",
                only("calls"),
            ),
        ],
    )
)
