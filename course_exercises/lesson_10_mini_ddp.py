"""Lesson 10: write DistributedDataParallel, its buckets, and BatchNorm over all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from course_check.cases import Case, crowd, drawn, rows
from course_check.exercise import Finding, Play
from course_check.rules import between_barriers
from course_check.usual_diagnoses import found, only, says
from course_exercises import gradients
from course_exercises.declare import each, exercise, marked, over_budget, unequal
from course_exercises.drivers.driven import BACKWARD, FORWARD, REDUCES, BothWays, Net, Training
from course_exercises.gradients import passes
from course_exercises.models import WORDS, model
from course_lib.trace import Event


def fill_buckets(
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


def keep_full(made: list, cap: float) -> list:
    """Only the buckets that reach the cap."""
    return [bucket for bucket in made if sum(p.nbytes for p in bucket) >= cap]


FORWARDS = {"order": iter}
NUMEL = {"size": Tensor.numel}
BEFORE = {"closes": lambda held, more, cap: held[-1] + more > cap}
BUCKET_HINTS = {  # of what 10.2 shows by the sizes of its calls, and 10.1 by itself
    "elements": "The cap is in bytes, and a number may have 2, 4 or 8; something else is counted.",
    "forward-order": "The first bucket holds the first parameters of the model. Their gradients "
    "come last.",
    "turned-late": "Buckets are filled from the first parameter on, and only then reversed.",
    "closes-too-soon": "A bucket closes without the parameter that would take it to the cap or "
    "past it. That parameter still belongs to it.",
    "closes-too-late": "A bucket of exactly cap_bytes has reached the cap.",
    "no-cap": "The cap decides nothing: all parameters lie in one bucket, or each in its own.",
    "size-kept": "The bytes of a full bucket are counted again for the next one, which should "
    "begin with none.",
}
BUCKET_MISTAKES: dict[str, list[dict[str, Any]]] = {
    "elements": [NUMEL, NUMEL | BEFORE, {"size": lambda p: 4 * p.numel()}],
    "forward-order": [FORWARDS, FORWARDS | NUMEL, FORWARDS | BEFORE],
    "turned-late": [
        FORWARDS | {"after": lambda made, cap: made[::-1]},
        FORWARDS | {"after": lambda made, cap: [bucket[::-1] for bucket in made[::-1]]},
    ],
    "closes-too-soon": [BEFORE, {"closes": lambda held, more, cap: held[-1] + more >= cap}],
    "closes-too-late": [{"closes": lambda held, more, cap: held[-1] > cap}],
    "no-cap": [{"closes": lambda *_: False}, {"closes": lambda *_: True}],
    "size-kept": [{"closes": lambda held, more, cap: sum(held) >= cap}],
}

# ---- 10.2 MiniDDP --------------------------------------------------------------------------------


def train(
    given: list[tuple[Training]],
    start: Callable[[list], None] = gradients.broadcast,
    reduces: Callable[[str], bool] = REDUCES.__contains__,
    contributes: Callable[[nn.Parameter, Training], Tensor | None] = lambda p, job: p.grad,
    which: Callable[[Training], slice] = lambda job: slice(None),
    divided_early: bool = False,
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
                    p.grad = contributes(p, job)
                elif p.grad is not None and divided_early:
                    p.grad = p.grad / len(jobs)
        if reduces(kind):
            gradients.average(models, which=which(jobs[0]), **mean)
        for job, sgd in zip(jobs, steps, strict=True):
            job.ends(number, sgd)


def fill_all(job: Training, **knobs: Any) -> list[list[nn.Parameter]]:
    """The buckets of a training job."""
    return fill_buckets(job.trained(), job.cap_bytes, **knobs)


def measure_buckets(job: Training, **knobs: Any) -> list[int]:
    """Bytes of each of its buckets."""
    return [sum(p.nbytes for p in bucket) for bucket in fill_all(job, **knobs)]


def lose_last(p: nn.Parameter, job: Training) -> Tensor | None:
    """register_hook calls back before the gradient is there that fills the bucket."""
    last = any(p is bucket[-1] for bucket in fill_all(job))
    return torch.zeros_like(p) if last else p.grad


def skip_open_bucket(job: Training) -> slice:
    """The parameters but those in a last bucket that has not reached the cap."""
    is_open = measure_buckets(job)[-1] < job.cap_bytes
    return slice(len(fill_all(job)[-1]) if is_open else 0, None)


def make_training(case: Case, rank: int) -> tuple[Training]:
    o, net = case.options, model(case, rank)
    for p in net.parameters():
        p.data /= 32
    without = ("second",) if str(rank) in o.get(gradients.MISSING, "") else ()
    batches = [drawn(case, f"batch {k} {rank}", 2, 2) / 4 for k, _ in enumerate(o["rounds"])]
    layers = Net(net, "swapped" in o["model"])
    return (Training(layers, o["rounds"], batches, o["cap_bytes"], without),)


class Round(NamedTuple):
    """What a rank calls in a round of training."""

    rank: int
    number: int  # from 1
    kind: str
    began: float
    calls: list[Event]

    def __str__(self) -> str:
        return f"round {self.number} ({self.kind}), rank {self.rank}"


def find_rounds(play: Play) -> Iterator[Round]:
    """The rounds of each rank, cut at the barriers before them."""
    for rank in play.ranks:
        events = play.trace.of(rank)
        began = [e.completed or e.issued for e in events if e.op == "barrier" and not e.line]
        parts = zip(play.given(0).rounds, began, between_barriers(play, rank), strict=False)
        for number, part in enumerate(parts, 1):
            yield Round(rank, number, *part)


def check_plan(play: Play) -> Iterator[Finding]:
    """One all_reduce for each bucket, in order, when it is full; no call in no_sync."""
    job, due = play.given(0), time_full_buckets(play)
    for one in find_rounds(play):
        want = measure_buckets(job) if one.kind in REDUCES else []
        sizes = [e.nbytes for e in one.calls]
        if sizes != want or any("all_reduce" not in e.op for e in one.calls):
            got = ", ".join(f"{e.op} of {e.nbytes} bytes" for e in one.calls) or "no call"
            text = f"{one}: {got}; the buckets to reduce have {want} bytes"
            yield from (Finding(kind, text) for kind in ("calls", *find_others(job, sizes, want)))
        if sizes == want:
            yield from find_late_call(one, due)


def time_full_buckets(play: Play) -> list[float]:
    """Of each bucket, after how much of a round it and all before it are full; where a gradient is
    missing, when backward has ended."""
    job = play.given(0)
    layers = [m for _, m in job.model.run if isinstance(m, nn.Linear)][::-1]
    before = float("inf") if gradients.MISSING in play.case.options else FORWARD * len(layers)
    there = {p: before + BACKWARD * k for k, m in enumerate(layers, 1) for p in m.parameters()}
    full = [max(there[p] for p in bucket) for bucket in fill_all(job)]
    return [*accumulate(full, max)]


def find_others(job: Training, sizes: list[int], want: list[int]) -> list[str]:
    """The mistakes that make buckets of these sizes."""
    return [
        id
        for id, ways in BUCKET_MISTAKES.items()
        if want and sizes in [measure_buckets(job, **way) for way in ways]
    ]


def find_late_call(one: Round, due: list[float]) -> Iterator[Finding]:
    """The first call that is issued after its bucket is full."""
    for e, when in zip(one.calls, due, strict=False):
        after = e.issued - one.began
        if after <= when + 1e-6:
            continue
        at_once = all(e.issued > one.began + due[-1] - 1e-6 for e in one.calls)
        how = "late" if after > when + 1e-3 else "waits-in-hook"
        how = "after-backward" if at_once else how
        issued = f"{one}: {e.op} of {e.nbytes} bytes is issued after {1e3 * after:.2f} ms"
        text = f"{issued}; its bucket could go after {1e3 * when:.2f} ms"
        yield Finding(how if one.number == 1 else "counts-left", text)
        return


def check_by_hand(play: Play) -> Iterator[Finding]:
    """What travels is issued at lines of the answer's, and not inside of torch's own wrapper."""
    calls = [e for e in play.trace.events if e.op != "barrier"]
    inside = [e for e in calls if e.line is None]
    if inside and len(inside) < len(calls):  # else lines cannot be found here at all
        e = inside[0]
        text = f"rank {e.rank}: {e.op} of {e.nbytes} bytes is called inside of torch"
        yield Finding("torchs-own", text)


def is_ordered_by_rank(play: Play) -> bool:
    """Calls do not fit together where a rank lacks a gradient."""
    return found("Mismatch")(play) and gradients.MISSING in play.case.options


def sends_no_zeros(play: Play) -> bool:
    """A call of other size than any bucket, where a gradient is missing."""
    sizes = {e.nbytes for e in play.trace.events if e.op.startswith("all_reduce")}
    return is_ordered_by_rank(play) and not sizes <= {*measure_buckets(play.given(0))}


def list_jobs(*sizes: tuple, **rest: Any) -> list[Case]:
    """A case for each (ranks, model, cap_bytes), and then perhaps the names of its rounds, and the
    ranks on which a gradient is missing."""

    def one(world: int, kind: str, cap: int, kinds: str = "sync", lacks: str = "") -> Case:
        options = {"model": kind, "cap_bytes": cap, "rounds": tuple(kinds.split(", "))}
        return Case(world, options=options | ({gradients.MISSING: lacks} if lacks else {}), **rest)

    return [one(*row) for row in sizes]


ROUNDS = {  # features, most by what stands in the names of rounds
    "with all layers": "a layer is used that one rank did not use the time before. What has "
    "counted or filled up then, and is still there?",
    "no_sync": "a pass lies in no_sync. Which pass settles whether gradients travel? And what does "
    "a block leave behind: its flag, counts, gradients?",
    "evaluate": "a forward pass has no backward. What does forward() count on?",
    "between": "a forward pass under no_grad comes between a forward pass and its backward. What "
    "does forward() begin anew that the pass under way still needs?",
    "half in no_sync": "half of a pass lies in no_sync. The forward half decides whether gradients "
    "travel; where backward runs does not matter.",
    "nested": "a no_sync block lies inside another. When it ends, what was before it has to be "
    "there again.",
    "kept gradient": "no_sync has left a gradient that the next pass does not add to. What a rank "
    "contributes is all that .grad holds, also where no hook ran.",
    "several steps": "there is more than one step. What does the second step find that the first "
    "one has left?",
}


def name_rounds(case: Case) -> set[str]:
    rounds = case.options["rounds"]
    steps = sum(kind in REDUCES for kind in rounds)
    there = {name for name in ROUNDS if name in " ".join(rounds)}
    return there | marked({"several steps": steps > 1})


two, four, twice = "two layers", "four layers", "sync, sync"
exercise(
    "10.2 MiniDDP",
    train,
    inputs=make_training,
    words=WORDS | ROUNDS,
    settle=gradients.zero_or_none,
    tolerance=1e-5,
    core=lambda rng: [
        *list_jobs((2, "one layer", 1000), (2, two, 8), (3, two, 16), (2, two, 16, twice)),
        *list_jobs((5, four, rng.randrange(17, 60), twice), (3, "buffers", 40)),
        *list_jobs(
            (2, two, 16, "no_sync, no_sync, sync, sync"), (2, "first layer frozen", 8, twice)
        ),
        *list_jobs((4, "a shared weight", 16, twice), (2, "two swapped", 16)),
        *list_jobs((2, two, 25, twice, "on rank 0")),
        *list_jobs((3, four, 25, "sync, sync with all layers, sync", "on ranks 1, 2")),
    ],
    sturdy=lambda rng: [
        *list_jobs((1, two, 16, "no_sync, sync, sync"), (crowd(rng), two, 16)),
        *list_jobs((2, "another dtype", 60, twice)),
        *list_jobs((2, two, 16), dtype="float64"),
        *list_jobs((2, two, 16, "evaluate, sync, evaluate"), (2, two, 16, "evaluate between")),
        *list_jobs((2, two, 16, "forward half in no_sync, sync")),
        *list_jobs((2, two, 16, "backward half in no_sync, sync")),
        *list_jobs((2, two, 16, "no_sync nested, sync"), (3, four, 25, "sync", "on ranks 0, 1, 2")),
        *list_jobs((2, two, 16, "no_sync kept gradient, sync", "on rank 0")),
    ],
    rules=[check_by_hand],
    budget=[check_plan],
    special=name_rounds,
    hints=gradients.HINTS
    | BUCKET_HINTS
    | {
        "no-broadcast": "The ranks' models differ from the start. Whose parameters and buffers "
        "should all have?",
        "parameter": "What the ranks average is the parameter itself. A hook is given the "
        "parameter: where is its gradient?",
        "too-early": "The last gradient of each bucket is not in the mean: register_hook calls "
        "back before .grad has it.",
        "stays-local": "After finish() each .grad holds its rank's own gradient. Are they sent (a "
        "hook gets the parameter)? Is the mean written?",
        "always": "Gradients travel although the forward pass ran in no_sync. Hooks and finish() "
        "run later, perhaps outside of it: what do they look at?",
        "divided-early": "What adds up in no_sync is divided by the number of ranks, and later "
        "divided again. When is it settled that a pass reduces?",
        "last-bucket": "The last bucket does not reach the cap, and its gradients stay as they "
        "are.",
        "torchs-own": "The answer leaves the averaging to a wrapper of torch's. That wrapper is "
        "what you build here.",
        "compares-tensors": "`in` and index() compare numbers. A set, a dict or `is` asks whether "
        "it is the same parameter.",
        "not-all-written": "It calls a method that is not written yet.",
        "no-zeros": "A rank without a gradient reduces less than the others, whose bucket has "
        "one. Put zeros into the bucket in place of a missing gradient.",
        "order-by-rank": "Two ranks reduce different buckets in one call, or one makes fewer "
        "calls. On a rank that lacks a gradient some bucket is never full: which may go before "
        "it, and what issues those that are open when backward has ended?",
        "calls": "Compare the calls with the buckets: each is reduced once, whole, in order. "
        "Nothing else is called, and nothing for a forward pass in no_sync.",
        "after-backward": "No bucket is issued before the last gradient is there. Some were full "
        "before: what could issue them then?",
        "waits-in-hook": "A full bucket is issued late: backward has stood still. Which call "
        "waits, and when is the mean needed?",
        "late": "A bucket is full, and backward goes on to another layer before it is issued. "
        "Which event issues it?",
        "counts-left": "In the first round buckets go in time, here late: what the hooks have "
        "counted in earlier rounds still counts.",
    },
    mistakes=gradients.MISTAKES
    | {
        "no-broadcast": {"start": lambda models: None},
        "parameter": {"contributes": lambda p, job: p.detach().clone()},
        "too-early": {"contributes": lose_last},
        "stays-local": {"which": lambda job: slice(0)},
        "always": {"reduces": lambda kind: True},
        "divided-early": {"divided_early": True},
        "last-bucket": {"which": skip_open_bucket},
    },
    diagnoses={
        "compares-tensors": says("Boolean value of Tensor"),
        "not-all-written": lambda p: p.done and any(isinstance(s.returned, str) for s in p.seen[0]),
        "no-zeros": sends_no_zeros,
        "order-by-rank": is_ordered_by_rank,
        "calls": lambda p: (
            over_budget("calls")(p) and WORDS.get(p.case.options["model"], "") is None
        ),
        "late": only("late", "after-backward"),
    },
)

# ---- 10.1 make_buckets ---------------------------------------------------------------------------


def make_parameter(number: int, word: str) -> nn.Parameter:
    """As many of the number as the word says: ``4f`` is frozen, ``4d`` of float64."""
    dtype = torch.float64 if "d" in word else torch.float32
    filled = torch.full((int(word.strip("fd")),), float(number), dtype=dtype)
    return nn.Parameter(filled, requires_grad="f" not in word)


def make_parameters(case: Case, rank: int) -> tuple[list[nn.Parameter], int]:
    words = case.options["sizes"].split()
    return [make_parameter(k, word) for k, word in enumerate(words, 1)], case.options["cap_bytes"]


SIZES = {
    "frozen": "a parameter is frozen. It has no gradient, no bucket, and no bytes in one.",
    "another dtype": WORDS["another dtype"],
    "a frozen one between": "a frozen parameter lies between others of another dtype. It is not "
    "one of those that are divided, and closes nothing.",
}


def name_parameters(case: Case) -> set[str]:
    sizes = case.options["sizes"]
    if "df" in sizes:
        return {"a frozen one between"}
    return marked({"frozen": "f" in sizes, "another dtype": "d" in sizes})


def cut_parameters(given: list[tuple], **knobs: Any) -> list:
    """The right buckets, as tensors."""
    return [[[p.detach() for p in bucket] for bucket in fill_buckets(*given[0], **knobs)]]


def params_of(*cases: tuple[str, int]) -> list[Case]:
    return [Case(1, options={"sizes": sizes, "cap_bytes": cap}) for sizes, cap in cases]


exercise(
    "10.1 make_buckets",
    cut_parameters,
    inputs=make_parameters,
    words=SIZES,
    in_ranks=False,
    free=["left"],
    core=lambda rng: [
        *params_of(("4", 100), ("2 4 2 4", 24), ("2 4 2 4", 25), ("1 1 1 1 1", 8)),
        *params_of(("1 1 9 1 1", 12), ("2 4f 2", 20)),
        *params_of((" ".join(str(rng.randrange(1, 9)) for _ in range(9)), 30)),
    ],
    sturdy=lambda rng: params_of(("", 8), ("2f 2f", 8), ("2d 2 2 2d 3d", 24), ("2 2df 2", 24)),
    special=name_parameters,
    hints=BUCKET_HINTS
    | {
        "last-lost": "The last bucket is missing. Must it reach the cap?",
        "empty-bucket": "A bucket is empty. At what moment is one begun?",
    },
    mistakes=BUCKET_MISTAKES | {"last-lost": [{"after": keep_full}]},
    diagnoses={"empty-bucket": lambda p: p.done and [] in [*(p.got(0).returned or ())]},
)

# ---- 10.3 sync_batch_norm ------------------------------------------------------------------------


def make_batch(case: Case, rank: int) -> tuple[BothWays]:
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
    return (BothWays(given, (case.options.get("eps", 1e-5),), upstream),)


def of_all(n: Tensor, k: int, rank: int) -> Tensor:
    return 1 / n.sum()


def mean_of_means(n: Tensor, k: int, rank: int) -> Tensor:
    return 1 / n[k] / len(n)


def normalise(
    given: list[tuple[BothWays]],
    share: Callable[[Tensor, int, int], Tensor] = of_all,
    path: Callable[[Tensor, int, int], Any] = lambda n, k, rank: 1,
    within_ranks: bool = False,
    end: Callable = lambda mean, v, eps, n: (mean, (v + eps).rsqrt()),
    added: tuple[str, ...] = (),
) -> None:
    """One process, all batches: values, and the gradients of all ranks' losses together, but of
    weight and bias each rank's own. The rest are mistakes: in the ``share`` that a number of batch
    k, one of sizes n, has in a rank's statistics, in the factor of the ``path`` back to it, and in
    the ``end`` of them: a centre and a scale."""
    jobs = [job for (job,) in given]
    leaves = [{k: t.double().requires_grad_() for k, t in job.given.items()} for job in jobs]
    batches = [leaf["x"].transpose(0, 1).flatten(1) for leaf in leaves]
    n = torch.tensor([b.shape[1] for b in batches], dtype=torch.float64)
    losses: list[Any] = []
    for rank, (job, leaf) in enumerate(zip(jobs, leaves, strict=True)):
        parts = [
            (share(n, k, rank), b.detach() + path(n, k, rank) * (b - b.detach()))
            for k, b in enumerate(batches)
            if n[k]
        ]
        mean = sum(part * b.sum(1) for part, b in parts)
        squares = sum(part * b.square().sum(1) for part, b in parts)
        less = sum(part * b.mean(1) * b.sum(1) for part, b in parts) if within_ranks else mean**2
        centre, scale = end(mean, squares - less, job.rest[0], n.sum())
        z = (leaf["x"].transpose(1, -1) - centre) * scale
        output = (z * leaf["weight"] + leaf["bias"]).transpose(1, -1)
        job.noted["output"] = output.detach().to(job.upstream.dtype)
        losses.append((output * job.upstream).sum())
    sum(losses).backward()
    for job, leaf in zip(jobs, leaves, strict=True):
        for name in leaf:
            grads: Any = [one[name].grad for one in (leaves if name in added else [leaf])]
            job.noted[f"{name}.grad"] = sum(grads).to(job.upstream.dtype)


def check_one_each_way(play: Play) -> Iterator[Finding]:
    """One all_reduce in each direction, of at most three numbers a channel."""
    for rank, when, calls in passes(play):
        numbers = [e.nbytes // getattr(torch, e.dtype or "uint8").itemsize for e in calls]
        said = f"rank {rank} calls {', '.join(e.op for e in calls) or 'nothing'} {when}"
        if [e.op for e in calls] != ["all_reduce"]:
            yield Finding("calls", said)
        elif max(numbers) > 3 * play.case.length:
            yield Finding("bytes", f"{said} with {numbers} numbers; 3 a channel are enough")


exercise(
    "10.3 sync_batch_norm",
    normalise,
    inputs=make_batch,
    words=WORDS
    | {"positions": "x has a third dimension. Each position along L is a sample of its channel."},
    tolerance=1e-5,
    length_is="channels",
    core=lambda rng: [
        *rows("batches", (2, 1, (2, 2)), (3, 2, (3, 3, 3)), (2, 1, (1, 3)), (3, 2, (4, 1, 2))),
        *rows("batches", (4, 3, (1,) * 4)),
        *rows("batches L", (2, 2, (2, 3), (3,))),
        *rows("batches eps", (2, 2, (3, 2), 0.5)),
        *rows("batches", (2, rng.randrange(2, 6), (rng.randrange(2, 6), rng.randrange(2, 6)))),
    ],
    sturdy=lambda rng: [
        *rows("batches", (1, 2, (4,)), (2, 2, (0, 3)), (5, 3, (1, 5, 2, 3, 1))),
        *rows("batches L", (3, 2, (2, 0, 3), (2,))),
        *rows("batches", (n := crowd(rng), 2, (1,) * n)),
        *rows("batches", (2, 2, (2, 3)), dtype="float64"),
    ],
    budget=[check_one_each_way],
    blank=False,
    special=lambda case: (
        unequal(case.options["batches"]) | marked({"positions": "L" in case.options})
    ),
    hints={
        "local": "Each rank uses the statistics of its own batch, as plain BatchNorm does.",
        "variances-averaged": "The ranks' variances are averaged. The variance of all samples "
        "also depends on how far apart the ranks' means are.",
        "counts-ignored": "Each sample counts the same, whichever rank has it: sums and counts "
        "are added up over the ranks, and divided once.",
        "unbiased": "BatchNorm divides by n for its variance, not by n − 1.",
        "root": "x − mean is divided by √(variance + eps): eps counts once, under the root.",
        "constant-statistics": "The gradient of x takes the mean, the variance or both for "
        "constants, but they depend on every sample.",
        "own-path-only": "The gradient of x lacks what x does to other ranks' outputs. (A plain "
        "all_reduce has no backward: autograd treats the others' sums as constants.)",
        "path-divided": "What comes to x through mean and variance has the wrong size. It is the "
        "sum over all ranks, divided by the number of all samples, once.",
        "weights-added": "A gradient of weight or bias is added up over the ranks. It has to "
        "stay local, because DDP averages it later.",
        "statistics-apart": "Sums, squares and counts can travel in one tensor: one all_reduce "
        "forward, one backward.",
    },
    mistakes={
        "local": {"share": lambda n, k, rank: (k == rank) / n[k]},
        "variances-averaged": each(within_ranks=[True], share=(of_all, mean_of_means)),
        "counts-ignored": [
            {"share": mean_of_means},
            {"share": lambda n, k, rank: 1 / n[rank]},
            {"share": lambda n, k, rank: 1 / n[rank] / len(n)},
        ],
        "unbiased": {"end": lambda mean, v, eps, n: (mean, (v * n / (n - 1) + eps).rsqrt())},
        "root": [
            {"end": lambda mean, v, eps, n: (mean, 1 / v.sqrt())},
            {"end": lambda mean, v, eps, n: (mean, 1 / (v.sqrt() + eps))},
            {"end": lambda mean, v, eps, n: (mean, 1 / (v + eps))},
        ],
        "constant-statistics": [
            {"path": lambda n, k, rank: 0},
            {"end": lambda mean, v, eps, n: (mean.detach(), (v + eps).rsqrt())},
            {"end": lambda mean, v, eps, n: (mean, (v.detach() + eps).rsqrt())},
        ],
        "own-path-only": [
            {"path": lambda n, k, rank: k == rank},
            {"path": lambda n, k, rank: (k == rank) * n.sum() / n[k]},
        ],
        "path-divided": [
            {"path": lambda n, k, rank: 1 / len(n)},
            {"path": lambda n, k, rank: n.sum() / n[k]},
        ],
        "weights-added": each(added=(("weight", "bias"), ("weight",), ("bias",))),
    },
    diagnoses={"statistics-apart": only("calls")},
)
