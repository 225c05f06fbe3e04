"""Lesson 05: average gradients, begin alike, know whether all are alike, take one step together.

Each rank gets a ``Model`` with weights, gradients and buffers of its own. Expected values are
means and copies by closed form and, for ``train_step``, the step of a single process on the union
of all batches. Any collective and any pattern of messages is allowed.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.checks.cases import Case, crowd
from course_lib.checks.compare import ANYTHING, leaves, same
from course_lib.checks.diagnoses import (
    IN_A_COPY,
    OfPlay,
    When,
    alone,
    any_of,
    both,
    every,
    found,
    hazard,
    only_spread,
    only_where,
    some,
)
from course_lib.checks.exercise import (
    BY_OPTIMIZERS,
    Diagnosis,
    Evidence,
    Exercise,
    Finding,
    Play,
    Seen,
    declare,
)
from course_lib.checks.lesson_05_models import (
    SGD,
    Cache,
    Counts,
    Model,
    Scaled,
    Shapes,
    force_grad,
)
from course_lib.checks.rules import trace_of
from course_lib.errors import Deadlock

NARROW = 1e-6  # relative: float32, whatever the order of adding

# ---- models ----------------------------------------------------------------------------------


def linear(dtype: str = "float32", features: int = 2, out: int = 2) -> nn.Linear:
    return nn.utils.skip_init(nn.Linear, features, out, dtype=getattr(torch, dtype))


def build(kind: str, dtype: str) -> Model:
    """A model of this kind, its tensors not yet filled."""
    if kind == "nothing at all":
        return Model()
    if kind == "only buffers":
        return Model(counts=Counts())
    if kind == "odd shapes":
        return Model(shapes=Shapes())
    if kind == "three dtypes":
        return Model(plain=linear(), wide=linear("float64"), narrow=linear("bfloat16"))
    if kind == "one layer":
        return Model(linear=linear(dtype))
    if kind == "digits":
        conv = nn.utils.skip_init(nn.Conv2d, 1, 2, 3, dtype=getattr(torch, dtype))
        return Model(conv=conv, flat=nn.Flatten(), relu=nn.ReLU(), linear=linear(dtype, 8, 3))
    first, second = linear(dtype), linear(dtype)
    if kind == "first layer frozen":
        first.requires_grad_(False)
    if kind == "a shared weight":
        second.weight = first.weight
    more: dict[str, nn.Module] = {}
    if kind == "a scale of its own":
        return Scaled(first=first)
    if kind in ("buffers", "more buffers"):
        more["counts"] = Counts(more=kind == "more buffers")
    if kind == "a cache":
        more["cache"] = Cache()
    if kind == "a block of layers":
        return Model(block=nn.Sequential(first, nn.Sequential(second)))
    return Model(first=first, second=second, **more)


def model_of(case: Case, salt: object, weights: float = 8.0) -> Model:
    """The case's model, its tensors filled with eighths that the salt chooses, no gradients."""
    model = build(case.options["model"], case.dtype)
    rng = case.random("weights", salt)
    with torch.no_grad():
        for t in (*model.parameters(), *model.buffers()):
            numbers: list[float]
            if t.dtype == torch.bool:
                numbers = [rng.random() < 0.5 for _ in range(t.numel())]
            elif not t.is_floating_point():
                numbers = [rng.randrange(100) for _ in range(t.numel())]
            else:
                numbers = [rng.choice((-1, 1)) * rng.randrange(1, 12) / weights
                           for _ in range(t.numel())]  # fmt: skip
            t.copy_(torch.tensor(numbers, dtype=t.dtype).reshape(t.shape))
    model.hold()
    return model


def transpose(model: Model) -> None:
    """Let the weights lie in memory column by column."""
    for p in model.parameters():
        p.data = p.data.t().contiguous().t() if p.dim() == 2 else p.data


# ---- what was seen ---------------------------------------------------------------------------


def ranks(play: Play) -> range:
    return range(play.case.world)


def nothing_replaced(play: Play) -> Iterator[Finding]:
    """In place means: the same tensor objects, with other numbers in them."""
    for rank in ranks(play):
        for call in range(play.case.calls):
            for name in getattr(play.left(rank, call), "replaced", ()):
                text = f"{name} is another tensor, or has other memory, than before"
                yield Finding("replaced", text, rank)


def weights_not_replaced(play: Play) -> Iterator[Finding]:
    """The same for parameters and buffers; gradients may come and go."""
    return (f for f in nothing_replaced(play) if ".grad is" not in f.text)


def flags_kept(play: Play) -> Iterator[Finding]:
    """What is trained and what is frozen, and the mode, are not the answer's to change."""
    for rank in ranks(play):
        if play.left(rank).training != play.given(rank).training:
            text = f"rank {rank}: model.training is {play.left(rank).training} now"
            yield Finding("flag", text, rank)
        now = dict(play.left(rank).named_parameters())
        for name, p in play.given(rank).named_parameters():
            if name in now and now[name].requires_grad != p.requires_grad:
                text = f"rank {rank}: requires_grad of {name} is {now[name].requires_grad} now"
                yield Finding("flag", text, rank)


def silent(play: Play) -> bool:
    return not any(e.peer is not None or e.nbytes or e.is_collective
                   for e in trace_of(play).events)  # fmt: skip


def waits_for_absent(play: Play) -> bool:
    """Ranks wait in a collective for ranks that have left, or that are in none."""
    error = play.error
    return isinstance(error, Deadlock) and any(
        not w.call.startswith(("send", "recv", "isend", "irecv")) for w in error.waits)  # fmt: skip


def talks_past(play: Play) -> bool:
    return found("deadlock", "mismatch")(play)


def is_kind(*kinds: str) -> OfPlay:
    return lambda p: p.case.options["model"] in kinds


def empty(p: Play) -> bool:
    return not list(p.given(0).parameters())


MISSING = "without gradient"


def misses(p: Play) -> bool:
    """A gradient is missing on some ranks or on all."""
    return MISSING in p.case.options


def models(*kinds: str, worlds: tuple[int, ...], dtype: str = "float32", **more: Any) -> list[Case]:
    return [Case(w, dtype=dtype, options={"model": kind, **more}) for kind in kinds for w in worlds]


def simpler(case: Case, **plain: Any) -> Iterator[Case]:
    """Fewer ranks and a smaller model, with the options that matter kept and, first, dropped."""
    kinds = ["one layer", "two layers", case.options["model"]]
    for world in range(1, case.world + 1):
        for options in ({**case.options, **plain}, case.options):
            for kind in dict.fromkeys(kinds):
                new = {**options, "model": kind}
                if fits_world(new, world):
                    yield Case(world, dtype=case.dtype, options=new)


def fits_world(options: dict[str, Any], world: int) -> bool:
    return int(options.get("src", 0)) < world


NOTHING_SENT = Diagnosis(
    "nothing-sent", "No rank says a word. What another rank holds reaches this one in a message, "
    "or not at all; equal seeds are luck.",
    every(lambda p: p.done and p.case.world > 1 and silent(p)),
)  # fmt: skip
NOT_EVERYBODY = Diagnosis(
    "not-everybody", "A collective needs everybody: some ranks are in one, and others never come. "
    "Which condition keeps them away?",
    both(every(waits_for_absent), some(lambda p: not misses(p))),
)  # fmt: skip
DISAGREE = Diagnosis(
    "calls-differ", "Every rank has to make the same calls, in the same order, with the same "
    "shapes and dtypes. Here one goes its own way, or leaves before the others.",
    every(talks_past),
)  # fmt: skip
ALONE = Diagnosis("alone", "A rank that is alone is a world, too.", only_where(alone))
NO_PARAMETERS = Diagnosis(
    "no-parameters", "A model may have no parameters; then there is nothing to send, and nothing "
    "goes wrong.", only_where(empty),
)  # fmt: skip
REPLACES = Diagnosis(
    "replaces", "The numbers are right, in new tensors or in new memory: whoever looks at the "
    "old does not see them. In place is asked for.",
    every(lambda p: p.kinds() == {"replaced"}),
)  # fmt: skip


# ---- average_gradients -----------------------------------------------------------------------


def lacks(case: Case, parameter: int, of: int, rank: int) -> bool:
    """Whether this rank has no gradient for this parameter, the ``parameter``-th of ``of``."""
    return {
        "": False,
        "the last parameter on rank 0": parameter == of - 1 and rank == 0,
        "the first parameter on rank 1": parameter == 0 and rank == 1,
        "every other parameter on odd ranks": parameter % 2 == 0 and rank % 2 == 1,
        "all parameters on the last rank": rank == case.world - 1,
        "the first parameter on any rank": parameter == 0,
    }[case.options.get(MISSING, "")]


def with_gradients(case: Case, rank: int) -> tuple[Model]:
    """Weights of its own and gradients that spell, in a sum, whose they are."""
    model = model_of(case, rank)
    if case.layout == "transposed":
        transpose(model)
    owners = [p for p in model.parameters() if p.requires_grad]
    for k, p in enumerate(owners):
        if lacks(case, k, len(owners), rank):
            continue
        rng = case.random("grad", rank, k)
        digits = case.world <= 5 and p.dtype == torch.float32
        numbers = [(k + i) % 9 + 1 if digits else rng.randrange(1, 8) for i in range(p.numel())]
        scale = 10**rank if digits else 1
        spelled = (torch.tensor(numbers, dtype=p.dtype) * scale).reshape(p.shape)
        p.grad = torch.empty_like(p).detach().copy_(spelled)  # in memory as the parameter is
        if "a NaN" in case.options and rank == 0:
            p.grad.view(-1)[0] = float("nan")
    model.hold()
    return (model,)


def gradients(play: Play, name: str, call: int = 0) -> list[Tensor | None]:
    """One parameter's gradients by rank, before."""
    return [play.given(r, call).get_parameter(name).grad for r in ranks(play)]


def total(grads: list[Tensor | None]) -> Tensor | None:
    there = [g.double() for g in grads if g is not None]
    return sum(there[1:], there[0]) if there else None


def mean_of(play: Play, name: str, call: int = 0) -> Tensor | None:
    """The mean over all ranks, a missing gradient counted as zero; None where all are."""
    grads = gradients(play, name, call)
    whole = total(grads)
    dtype = next((g.dtype for g in grads if g is not None), None)
    return None if whole is None else (whole / play.case.world).to(dtype)


def averaged(play: Play, call: int) -> list[Seen]:
    out = []
    for rank in ranks(play):
        want, got = copy.deepcopy(play.given(rank, call)), play.left(rank, call)
        now = dict(got.named_parameters()) if isinstance(got, nn.Module) else {}
        for name, p in want.named_parameters():
            grad = mean_of(play, name, call)
            there = now[name].grad if name in now else None
            if grad is None and there is not None and there.dtype == p.dtype:
                grad = torch.zeros_like(p)  # missing on all: None or zero
            p.grad = grad
        out.append(Seen(None, (want,)))
    return out


def misses_some(p: Play) -> bool:
    """A gradient is missing on some ranks, and there on others."""
    return misses(p) and any(0 < sum(g is None for g in gradients(p, name)) < p.case.world
                             for name, _ in p.given(0).named_parameters())  # fmt: skip


def complete(p: Play) -> bool:
    """Every parameter has a gradient, on every rank."""
    return all(None not in gradients(p, name) for name, _ in p.given(0).named_parameters())


def grads_are(prediction: Callable[[Play, str, int], Tensor | None], weights: bool = True) -> When:
    """In each play without missing gradients, on every rank, they are what the mistake makes.

    ``weights``: and weights and buffers are as they were.
    """

    def explained(p: Play) -> bool:
        return p.done and all(grad_is(p, r, name, prediction(p, name, r))
                              for r in ranks(p) for name in names(p)) and (
            not weights or all(others_untouched(p, r) for r in ranks(p)))  # fmt: skip

    def when(e: Evidence) -> bool:
        plays = [p for p in e.plays if complete(p) and p.case.world > 1 and names(p)]
        return any(p in plays for p in e.failed) and all(map(explained, plays))

    return when


def names(play: Play) -> list[str]:
    """The parameters of which somebody has a gradient."""
    return [name for name, _ in play.given(0).named_parameters()
            if any(g is not None for g in gradients(play, name))]  # fmt: skip


def grad_of(play: Play, rank: int, name: str) -> Tensor | None:
    return dict(play.left(rank).named_parameters())[name].grad


def grad_is(play: Play, rank: int, name: str, want: Tensor | None) -> bool:
    got = grad_of(play, rank, name)
    if got is None or want is None:
        return got is want
    return same(got.double(), want.double(), 1e-4 if want.dtype == torch.bfloat16 else NARROW)


def others_untouched(play: Play, rank: int) -> bool:
    """Parameters and buffers are as they were."""
    old, new = dict(leaves(play.given(rank))), dict(leaves(play.left(rank)))
    return old.keys() == new.keys() and all(
        same(new[path], old[path]) for path in old if not path.endswith(".grad"))  # fmt: skip


def sum_over(power: int) -> Callable[[Play, str, int], Tensor | None]:
    """The sum divided by n^power."""
    return lambda p, name, r: scaled(p, name, p.case.world**power)


def divided_by(k: int) -> Callable[[Play, str, int], Tensor | None]:
    return lambda p, name, r: scaled(p, name, k)


def scaled(play: Play, name: str, by: int) -> Tensor | None:
    whole = total(gradients(play, name))
    return None if whole is None else whole / by


def own(play: Play, name: str, rank: int) -> Tensor | None:
    return gradients(play, name)[rank]


def own_part(play: Play, name: str, rank: int) -> Tensor | None:
    mine = own(play, name, rank)
    return None if mine is None else mine / play.case.world


def weights_travel(play: Play) -> bool:
    """Every rank's weights are the mean of everybody's, or the sum."""
    for name, p in play.given(0).named_parameters():
        if not p.requires_grad:
            continue
        every = torch.stack([play.given(r).get_parameter(name).data.double() for r in ranks(play)])
        got = [dict(play.left(r).named_parameters())[name].data.double() for r in ranks(play)]
        near = 1e-2 if p.dtype == torch.bfloat16 else NARROW
        if not any(all(same(g, want, near) for g in got) for want in (every.mean(0), every.sum(0))):
            return False
    return True


def layers_left(p: Play, but: int = 0) -> bool:
    """Some parameters' gradients are as they were, all others (``but`` or more) are averaged."""
    if not p.done or misses(p) or not all(others_untouched(p, r) for r in ranks(p)):
        return False
    state = {}
    for name in names(p):
        right = all(grad_is(p, r, name, mean_of(p, name)) for r in ranks(p))
        left = all(grad_is(p, r, name, own(p, name, r)) for r in ranks(p))
        if not (right or left):
            return False
        state[name] = right
    return sum(state.values()) >= but and not all(state.values())


def one_rank_right(p: Play) -> bool:
    """One rank has the mean, and no other."""
    if not p.done or misses(p) or p.case.world == 1 or not names(p):
        return False
    right = [all(grad_is(p, r, name, mean_of(p, name)) for name in names(p)) for r in ranks(p)]
    return sum(right) == 1


def dtype_differs(p: Play) -> bool:
    return p.done and any(
        (g := grad_of(p, r, name)) is not None and g.dtype != p.given(r).get_parameter(name).dtype
        for r in ranks(p) for name in names(p))  # fmt: skip


def none_stays(p: Play) -> bool:
    """Where a rank had no gradient it still has none; all other gradients are right."""
    if not p.done or not misses_some(p):
        return False
    there = [(r, name) for r in ranks(p) for name in names(p) if own(p, name, r) is not None]
    bare = [(r, name) for r in ranks(p) for name in names(p) if own(p, name, r) is None]
    return all(grad_is(p, r, name, mean_of(p, name)) for r, name in there) and all(
        grad_of(p, r, name) is None for r, name in bare)  # fmt: skip


def mean_of_holders(p: Play) -> bool:
    """Divided by how many have a gradient, not by how many ranks there are."""
    if not p.done or not misses_some(p):
        return False
    holders = {name: sum(g is not None for g in gradients(p, name)) for name in names(p)}
    return all(grad_is(p, r, name, scaled(p, name, holders[name]))
               or (grad_of(p, r, name) is None and own(p, name, r) is None)
               for r in ranks(p) for name in names(p))  # fmt: skip


def several_hold(p: Play) -> bool:
    """Some parameter has a gradient on more ranks than one, and not on all."""
    holders = [sum(g is not None for g in gradients(p, name)) for name in names(p)]
    return any(1 < count < p.case.world for count in holders)


def average_core(rng: random.Random) -> list[Case]:
    plain = models("one layer", "two layers", worlds=(2, 3, 4, 5))
    kinds = models("first layer frozen", "a shared weight", "buffers", "a block of layers",
                   "a scale of its own", worlds=(2, 3))  # fmt: skip
    gaps = [Case(w, options={"model": "two layers", MISSING: what}, seed=rng.randrange(99))
            for w, what in ((2, "the last parameter on rank 0"),
                            (3, "the first parameter on rank 1"),
                            (4, "every other parameter on odd ranks"),
                            (3, "all parameters on the last rank"),
                            (2, "the first parameter on any rank"))]  # fmt: skip
    return [*plain, *kinds, *gaps, Case(3, options={"model": "two layers"}, seed=5, calls=2)]


def average_sturdy(rng: random.Random) -> list[Case]:
    kinds = models("odd shapes", "nothing at all", "only buffers", worlds=(1, 3))
    dtypes = [c for d in ("float64", "bfloat16")
              for c in models("two layers", worlds=(2, 4), dtype=d)]  # fmt: skip
    many = {"model": "two layers", MISSING: "every other parameter on odd ranks"}
    alone = {"model": "two layers", MISSING: "the last parameter on rank 0"}
    return [*models("two layers", worlds=(1, 8, crowd(rng))), *kinds, *dtypes,
            *models("three dtypes", worlds=(2, 4)), *models("a cache", worlds=(3,)),
            *models("two layers", worlds=(2, 3), **{"a NaN": "on rank 0"}),
            Case(8, options=many), Case(3, dtype="float64", options=many),
            Case(1, options=alone),
            Case(2, layout="transposed", options={"model": "two layers"})]  # fmt: skip


declare(Exercise(
    "05.1", "average_gradients",
    inputs=with_gradients,
    expected=averaged,
    core=average_core,
    sturdy=average_sturdy,
    fits=lambda case: case.world > 1,
    smaller=simpler,
    tolerance=NARROW,
    length_is="",
    rules=[nothing_replaced, flags_kept],
    diagnoses=[
        NOTHING_SENT, NOT_EVERYBODY,
        Diagnosis("in-flight", "An asynchronous call returns before it is done, and the gradient "
                  "is not yours before wait() on the Work that it returned.",
                  some(hazard("never waited for", "written before wait"))),
        Diagnosis("sum", "Every rank has the sum of all gradients. As the step on a larger batch "
                  "it is n times too long.", grads_are(sum_over(0))),
        Diagnosis("divided-twice", "It is too small by the number of ranks: somewhere it is "
                  "divided a second time.", grads_are(sum_over(2))),
        Diagnosis("averages-weights", "The weights travel, and the gradients stay: every rank "
                  "keeps its own. Which of a parameter's two tensors is to be the same for all?",
                  both(any_of(grads_are(own, weights=False), grads_are(own_part, weights=False)),
                       every(lambda p: misses(p) or (p.done and weights_travel(p))))),
        Diagnosis("fixed-world", "It divides by the same number, however many ranks there are. "
                  "The world can say how large it is.",
                  any_of(*(grads_are(divided_by(k)) for k in range(2, 9)))),
        Diagnosis("left-unwritten", "Something was exchanged, and every gradient is what it was: "
                  "the result is in a tensor that nobody looks at.", grads_are(own)),
        Diagnosis("averages-a-copy", "It is right for gradients that are contiguous. Of the others "
                  "contiguous() and reshape() make a copy: what is done to the copy does not "
                  "reach the gradient.", both(only_where(lambda p: p.case.layout == "transposed"),
                                               every(lambda p: p.done), some(complete))),
        Diagnosis("root-only", "One rank has the mean, the others have not: all of them take the "
                  "step.", both(every(lambda p: misses(p) or one_rank_right(p)),
                                some(one_rank_right))),
        Diagnosis("changes-dtype", "A gradient has come back in another dtype than its "
                  "parameter's.", every(dtype_differs)),
        Diagnosis("some-layers", "Some parameters' gradients are averaged, others are still this "
                  "rank's own. Does it visit all parameters?",
                  both(every(lambda p: misses(p) or layers_left(p)),
                       some(lambda p: layers_left(p, but=1)))),
        Diagnosis("changes-more", "The gradients are right, and something else has changed: "
                  "weights and buffers are none of its business.", every(
                      lambda p: p.done and not all(others_untouched(p, r) for r in ranks(p))
                      and all(grad_is(p, r, n, mean_of(p, n)) for r in ranks(p)
                              for n in names(p)))),
        Diagnosis("skips-none", "A rank without a gradient says nothing about it, and the others "
                  "wait for it, or meet it in the next call: every rank has to make the same "
                  "calls.", both(only_where(misses_some), every(talks_past))),
        Diagnosis("none-raises", "Not every parameter has a gradient: a frozen one has none, and "
                  "one that this rank's batch did not use.", both(only_where(
                      lambda p: misses(p) or is_kind("first layer frozen")(p)),
                      every(found("raised")))),
        Diagnosis("none-stays", "A rank that had no gradient still has none, while the others "
                  "have the mean: its weights will fall behind theirs.", every(none_stays)),
        Diagnosis("divides-by-holders", "It divides by the number of ranks that had a gradient. "
                  "A missing one counts as zero, and its rank counts.",
                  both(every(mean_of_holders), some(several_hold))),
        REPLACES, ALONE, NO_PARAMETERS, DISAGREE,
    ],
))  # fmt: skip


# ---- broadcast_parameters --------------------------------------------------------------------


def source(case: Case) -> int:
    return int(case.options.get("src", 0))


HOLDS = "with"


def different_models(case: Case, rank: int) -> tuple:
    """Every rank has a model of its own; the root is named only where the case names one."""
    model = model_of(case, rank)
    if case.layout == "transposed":
        transpose(model)
    if HOLDS in case.options and rank == 0:
        first = next(model.parameters())
        first.grad = torch.ones_like(first)
    with torch.no_grad():
        for name, t in model.named_buffers():
            if name.endswith("count") and case.options.get("count") == "large":
                t.fill_(2**53 + 1 + 2 * rank)  # float32 and float64 would round it
            elif name.endswith("mask"):
                t.copy_(torch.tensor([rank % 2 == k % 2 for k in range(3)]))
    model.hold()
    return (model, case.options["src"]) if "src" in case.options else (model,)


def broadcasted(play: Play, call: int) -> list[Seen]:
    """The root's parameters and buffers; gradients are nobody's business."""
    out = []
    for args in play.inputs[call]:
        want = copy.deepcopy(play.inputs[call][source(play.case)][0])
        for p, own in zip(want.parameters(), args[0].parameters(), strict=True):
            force_grad(p, own.grad)
        out.append(Seen(None, (want, *args[1:])))
    return out


def tensors_of(model: Model) -> dict[str, Tensor]:
    return {path[1:]: t for path, t in leaves(model) if not path.endswith(".grad")}


def wrong_tensors(play: Play) -> set[str]:
    """The names of what is wrong on some rank; everything where names themselves differ."""
    wrong = set()
    want = tensors_of(play.given(source(play.case)))
    for r in ranks(play):
        got = tensors_of(play.left(r))
        if got.keys() != want.keys():
            return set(want)
        wrong |= {name for name in want if not same(got[name], want[name])}
    return wrong


def as_before(play: Play, chosen: set[str]) -> bool:
    """On every rank, these tensors are what they were."""
    return all(same(tensors_of(play.left(r)).get(name), tensors_of(play.given(r))[name])
               for r in ranks(play) for name in chosen)  # fmt: skip


def only_wrong(test: Callable[[Model, str], bool]) -> OfPlay:
    """What passes the test was left as it was, and everything else has arrived."""

    def holds(p: Play) -> bool:
        if not p.done:
            return False
        wrong, model = wrong_tensors(p), p.given(0)
        return bool(wrong) and all(test(model, n) for n in wrong) and as_before(p, wrong)

    return holds


def is_buffer(model: Model, name: str) -> bool:
    return name in dict(model.named_buffers())


def is_whole(model: Model, name: str) -> bool:
    """A buffer of whole numbers or truth values."""
    return is_buffer(model, name) and not tensors_of(model)[name].is_floating_point()


def is_cached(model: Model, name: str) -> bool:
    return is_buffer(model, name) and name not in model.state_dict()


def is_frozen(model: Model, name: str) -> bool:
    return not is_buffer(model, name) and not model.get_parameter(name).requires_grad


def untouched(p: Play) -> bool:
    return p.done and as_before(p, set(tensors_of(p.given(0))))


def has_of_rank_0(p: Play) -> bool:
    want = tensors_of(p.given(0))
    return p.done and all(same(tensors_of(p.left(r)), want) for r in ranks(p))


def mean_of_models(p: Play) -> bool:
    """The floats are the mean of everybody's, as far as they are wrong."""
    if not p.done:
        return False
    wrong = {n for n in wrong_tensors(p) if tensors_of(p.given(0))[n].is_floating_point()}
    for name in wrong:
        mean = torch.stack([tensors_of(p.given(r))[name].double() for r in ranks(p)]).mean(0)
        if not all(same(tensors_of(p.left(r))[name].double(), mean, 1e-2) for r in ranks(p)):
            return False
    return bool(wrong)


def nearly_right(p: Play) -> bool:
    """Every tensor is right but for the last digits, which another dtype has lost."""
    if not p.done or not wrong_tensors(p):
        return False
    want = tensors_of(p.given(source(p.case)))
    got = [tensors_of(p.left(r)) for r in ranks(p)]
    return all(g.keys() == want.keys() and all(
        g[n].dtype == want[n].dtype and same(g[n].double(), want[n].double(), 1e-2) for n in want)
        for g in got)  # fmt: skip


def spread_core(rng: random.Random) -> list[Case]:
    plain = models("one layer", "two layers", worlds=(2, 3, 5))
    roots = [Case(w, options={"model": "two layers", "src": s}, seed=rng.randrange(99))
             for w, s in ((2, 1), (3, 0), (3, 2), (4, 1), (5, 4))]  # fmt: skip
    kinds = models("buffers", "first layer frozen", "a shared weight", "a scale of its own",
                   worlds=(2, 3))  # fmt: skip
    return [*plain, *roots, *kinds, *models("buffers", worlds=(4,), src=2),
            Case(3, options={"model": "buffers", "src": 1}, calls=2)]  # fmt: skip


def spread_sturdy(rng: random.Random) -> list[Case]:
    kinds = models("odd shapes", "nothing at all", "only buffers", "two layers", worlds=(1, 3))
    dtypes = [c for d in ("float64", "bfloat16", "float16")
              for c in models("more buffers", worlds=(3,), dtype=d, src=1)]  # fmt: skip
    dtypes += models("two layers", worlds=(2, 3), src=1, **{HOLDS: "gradients on rank 0"})
    exact = models("more buffers", worlds=(2, 3), src=1, count="large")
    return [*kinds, *dtypes, *exact, *models("three dtypes", worlds=(3,), src=2),
            *models("a cache", worlds=(2, 3), src=1),
            Case(3, layout="transposed", options={"model": "two layers", "src": 2}),
            *models("more buffers", worlds=(8, crowd(rng)), src=5)]  # fmt: skip


declare(Exercise(
    "05.2", "broadcast_parameters",
    inputs=different_models,
    expected=broadcasted,
    core=spread_core,
    sturdy=spread_sturdy,
    fits=lambda case: case.world > 1,
    smaller=simpler,
    length_is="",
    rules=[nothing_replaced, flags_kept],
    diagnoses=[
        NOTHING_SENT, NOT_EVERYBODY,
        Diagnosis("parameters-only", "The parameters have arrived, the buffers have not: running "
                  "means and counters are part of a model, too.",
                  both(every(only_wrong(is_buffer)), some(lambda p: only_wrong(is_buffer)(p)
                       and not only_wrong(is_whole)(p) and not only_wrong(is_cached)(p)))),
        Diagnosis("skips-integers", "The floats have arrived, and what is no float has not: a "
                  "counter is a buffer, too.", every(only_wrong(is_whole))),
        Diagnosis("skips-frozen", "A frozen parameter is not trained, and is used all the same.",
                  every(only_wrong(is_frozen))),
        Diagnosis("skips-cache", "A buffer that is not saved with the model (persistent=False) is "
                  "no part of its state_dict; it is part of the model.",
                  every(only_wrong(is_cached))),
        Diagnosis("root-fixed", "Whichever rank is asked for, everybody ends with the model of "
                  "rank 0.", both(only_where(lambda p: source(p.case) != 0),
                                  every(has_of_rank_0))),
        Diagnosis("rebinding", "The message has come, and the model is what it was: a name that "
                  "is given a new tensor does not change the old one.", every(untouched)),
        Diagnosis("averages", "Every rank has the mean of all models. The one of src is asked "
                  "for.", every(mean_of_models)),
        Diagnosis("through-another-dtype", "Everything is right but for the last digits: "
                  "something has travelled in a dtype that cannot hold it.", every(nearly_right)),
        Diagnosis("copy-not-written-back", IN_A_COPY, only_spread),
        REPLACES, ALONE, NO_PARAMETERS, DISAGREE,
    ],
))  # fmt: skip


# ---- same_everywhere -------------------------------------------------------------------------

NOWHERE = "nowhere"


BESIDE = "but beside a weight in memory"


def nearly_equal_models(case: Case, rank: int) -> tuple[Model]:
    """The same model on every rank, but for what the case says."""
    model = model_of(case, "all")
    with torch.no_grad():
        spoil(model, case, rank)
    model.beside = float(rank) if BESIDE in case.options["differs"] else None
    model.hold()
    return (model,)


def spoil(model: Model, case: Case, rank: int) -> None:
    """Make the difference that the case names."""
    what, world = case.options["differs"], case.world
    parameters, buffers = list(model.parameters()), dict(model.named_buffers())
    first = parameters[0].view(-1) if parameters else torch.zeros(4)
    first[:4] = torch.tensor([0.5, -1.25, 0.75, 2.0])[: len(first)]
    if what == NAN:
        first[0] = float("nan")
    if "in bytes" in what:
        first[0] = 0.7  # no byte of it is zero
    last = parameters[-1].view(-1) if parameters else torch.zeros(4)
    here = {"rank 0": (0,), "rank 1": (1,), "the last rank": (world - 1,), "two ranks": (0, 1)}
    where = next((here[k] for k in here if what.endswith(k)), ())
    if what.startswith("opposite ways in bytes"):
        first[:1].view(torch.uint8)[0] += {1: 1, world - 1: 255}.get(rank, 0)  # up, and down
    elif what.startswith("opposite ways"):
        first[1] += {0: 1.0, world - 1: -1.0}.get(rank, 0.0)
    elif rank not in where:
        return
    elif what.startswith("a weight"):
        first[2] += 1
    elif what.startswith("the last parameter"):
        last[-1] += 1
    elif what.startswith("two tensors, swapped"):
        one, other = parameters[0].clone(), parameters[2].clone()
        parameters[0].copy_(other)
        parameters[2].copy_(one)
    elif what.startswith("two weights, swapped"):
        first[:2] = first[:2].flip(0)
    elif what.startswith("one up, one down"):
        first[:2] += torch.tensor([1.0, -1.0])
    elif what.startswith("another sign"):
        first[:2] = -first[:2]
    elif what.startswith("up, down, down, up"):  # sums of places times numbers are the same, too
        four = first[:1].view(torch.uint8) if "in bytes" in what else first[:4]
        four += torch.tensor([1, -1, -1, 1]).to(four.dtype)
    elif what.startswith("the last bit"):
        first[3] = torch.nextafter(first[3], torch.tensor(9.0, dtype=first.dtype))
    elif what.startswith("a NaN"):
        first[0] = float("nan")
    else:
        name = "counts.mean" if "mean" in what else "counts.count"
        name = "cache.table" if "cache" in what else name
        buffers[name].view(-1)[:1] += 1


NAN = "nowhere, a NaN on all"


def differs(case: Case) -> bool:
    return case.world > 1 and not str(case.options["differs"]).startswith(NOWHERE)


def on(*beginnings: str) -> OfPlay:
    """The difference is one of these."""
    return lambda p: str(p.case.options["differs"]).startswith(beginnings)


def answers(play: Play) -> list[Any]:
    return [play.got(r).returned for r in ranks(play)]


def says(value: bool) -> OfPlay:
    return lambda p: p.done and all(a is value for a in answers(p))


def ranks_disagree(p: Play) -> bool:
    return p.done and {True, False} == set(answers(p))


def differs_beyond(k: int) -> OfPlay:
    """The rank that differs is the k-th or a later one."""

    def test(p: Play) -> bool:
        first = [tensors_of(p.given(r)) for r in range(min(k, p.case.world))]
        alike = all(same(model, first[0]) for model in first)
        return differs(p.case) and p.case.world > k and alike

    return test


def comparing(model: str, what: str, worlds: tuple[int, ...], dtype: str = "float32") -> list[Case]:
    return models(model, worlds=worlds, dtype=dtype, differs=what)


def same_core(rng: random.Random) -> list[Case]:
    equal = [c for m in ("one layer", "buffers") for c in comparing(m, NOWHERE, (2, 3, 5))]
    where = [c for k in ("rank 0", "rank 1", "the last rank")
             for c in comparing("two layers", f"a weight, on {k}", (2, 4))]  # fmt: skip
    tricky = [c for w in ("the last parameter", "two weights, swapped", "one up, one down",
                          "up, down, down, up", "up, down, down, up, in bytes", "the last bit",
                          "the mean in a buffer", "the count in a buffer")
              for c in comparing("buffers", f"{w}, on the last rank", (2, 3))]  # fmt: skip
    return [*equal, *where, *tricky, *comparing("one layer", "opposite ways", (3, 5)),
            *comparing("one layer", "opposite ways in bytes, beside rank 0", (3, 4)),
            *comparing("first layer frozen", "a weight, on the last rank", (2, 3)),
            *comparing("two layers", "two tensors, swapped, on the last rank", (2, 3)),
            *comparing("two layers", "the last bit, on rank 1", (4,)),
            *comparing("two layers", "another sign, on two ranks", (3, 4)),
            Case(3, options={"model": "buffers", "differs": "a weight, on rank 1"},
                 calls=2)]  # fmt: skip


def same_sturdy(rng: random.Random) -> list[Case]:
    special = [*comparing("one layer", NAN, (2, 3)), *comparing("one layer", NAN, (2,), "bfloat16")]
    others = comparing("one layer", "a NaN, on the last rank", (2, 3))
    count = comparing("buffers", "the count in a buffer, on the last rank", (8,))
    kinds = [c for m in ("nothing at all", "only buffers", "odd shapes", "three dtypes",
                         "a shared weight") for c in comparing(m, NOWHERE, (1, 3))]  # fmt: skip
    dtypes = [c for d in ("float64", "bfloat16") for c in comparing(
        "two layers", "the last bit, on the last rank", (3,), d)]  # fmt: skip
    return [*special, *others, *count, *kinds, *dtypes,
            *comparing("one layer", f"{NOWHERE}, {BESIDE}", (2, 3)),
            *comparing("two layers", NOWHERE, (1, 8, crowd(rng))),
            *comparing("a cache", "the cache in a buffer, on the last rank", (2, 3)),
            *comparing("two layers", "a weight, on rank 1", (8,))]  # fmt: skip


declare(Exercise(
    "05.3", "same_everywhere",
    inputs=nearly_equal_models,
    expected=lambda play, call: [Seen(not differs(play.case), play.inputs[call][r])
                                 for r in ranks(play)],
    core=same_core,
    sturdy=same_sturdy,
    rules=[flags_kept],
    fits=lambda case: case.world > 1,
    told=lambda case: case.world > 1,
    smaller=lambda case: (c for c in simpler(case) if can_differ(c)),
    length_is="",
    diagnoses=[
        NOT_EVERYBODY,
        Diagnosis("local", "Ranks come to different answers. Whoever asks, wherever, is to hear "
                  "the same: what one rank has found out has to reach all the others.",
                  some(ranks_disagree)),
        NOTHING_SENT,
        Diagnosis("changes-model", "Asking has changed the model: what arrives belongs into "
                  "a tensor of its own.",
                  every(lambda p: found("argument changed")(p))),
        Diagnosis("two-ranks", "It compares the first two ranks; the one that differs is a later "
                  "one.", both(only_where(differs_beyond(2)), every(says(True)),
                               lambda e: not any(map(differs_beyond(2), e.passed)))),
        Diagnosis("tolerance", "A difference in the last bit passes for none. Bit-equal is asked "
                  "for: from a last bit training makes more.",
                  both(only_where(on("the last bit,", "opposite ways in bytes")),
                       some(on("the last bit,")), every(says(True)))),
        Diagnosis("cancels", "Differences cancel in a sum, and it says that there is none.",
                  both(only_where(on("two", "one up", "up, down", "opposite")),
                       some(lambda p: not on("two tensors")(p)), every(says(True)))),
        Diagnosis("skips-integers", "A counter differs, and it says that nothing does: what is no "
                  "float is part of the model, too.", both(
                      only_where(on("the count")), every(says(True)))),
        Diagnosis("skips-buffers", "A buffer differs, and it says that nothing does.",
                  both(only_where(on("the mean", "the count", "the cache")), every(says(True)),
                       some(on("the mean")))),
        Diagnosis("skips-cache", "A buffer that is not saved with the model (persistent=False) is "
                  "no part of its state_dict; it is part of the model.",
                  both(only_where(on("the cache")), every(says(True)))),
        Diagnosis("skips-frozen", "A frozen parameter is not trained, and is used all the same.",
                  both(only_where(is_kind("first layer frozen")), every(says(True)))),
        Diagnosis("nan", "All ranks hold the same bits, a NaN among them, and it says no: a NaN "
                  "is not equal to itself, and its bits are.",
                  both(only_where(on("nowhere, a NaN")), every(says(False)))),
        ALONE, NO_PARAMETERS, DISAGREE,
    ],
))  # fmt: skip


def can_differ(case: Case) -> bool:
    """Whether the model has what is to differ, and the world a rank to differ on."""
    what, kind = str(case.options["differs"]), case.options["model"]
    if "buffer" in what:
        return kind in (("a cache",) if "cache" in what else ("buffers", "more buffers"))
    if what.startswith("two tensors") and kind != "two layers":
        return False
    if what.endswith("rank 1") and case.world < 2:
        return False
    return case.world > 2 or not (what.startswith("opposite") or what.endswith("two ranks"))


# ---- train_step ------------------------------------------------------------------------------

SIZES = "batch sizes"
GROUPS = "parameter groups"


def step_inputs(case: Case, rank: int) -> tuple[Model, SGD, Tensor, Tensor]:
    """The same model and optimizer on every rank, a batch of its own on each."""
    o, dtype = case.options, getattr(torch, case.dtype)
    model = model_of(case, "all", weights=16.0)
    if case.layout == "transposed":
        transpose(model)
    more = {name: o.get(name, 0.0) for name in ("momentum", "weight_decay")}
    cut = 1 if GROUPS in o else 0
    parts = [
        part for part in (list(model.parameters())[:cut], list(model.parameters())[cut:]) if part
    ]
    optimizer = SGD([{"params": part} for part in parts], lr=o.get("lr", 0.5), **more)
    rng, size = case.random("batch", rank), o[SIZES][rank]
    shape = (size, 1, 4, 4) if o["model"] == "digits" else (size, 2)
    count = size * (16 if o["model"] == "digits" else 2)
    signed = [rng.choice((-1, 1)) * rng.randrange(1, 9) / 4 for _ in range(count)]
    x = torch.tensor(signed, dtype=dtype).reshape(shape)
    y = torch.tensor([rng.randrange(2) for _ in range(size)], dtype=torch.int64)
    for k, p in enumerate(model.parameters()):
        if o.get("momentum"):
            push = case.random("momentum", k)
            optimizer.state[p]["momentum_buffer"] = torch.tensor(
                [push.randrange(-4, 5) / 8 for _ in range(p.numel())], dtype=dtype
            ).reshape(p.shape)
        if "gradients" in o:
            p.grad = torch.full_like(p, 1.0 + rank + k)
    model.hold()
    return model, optimizer, x, y


def union(play: Play, call: int = 0) -> tuple[Tensor, Tensor]:
    return (torch.cat([args[2] for args in play.inputs[call]]),
            torch.cat([args[3] for args in play.inputs[call]]))  # fmt: skip


Grads = dict[str, Tensor]


def local(play: Play, rank: int, call: int = 0) -> tuple[Grads, float, int]:
    """One rank's gradients of the summed loss, that loss, and the size of its batch."""
    model, _, x, y = copy.deepcopy(play.inputs[call][rank])
    model.zero_grad()
    loss = cross_entropy(model(x), y, reduction="sum")
    loss.backward()
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return grads, loss.item(), len(y)


def stepped(play: Play, grads: Grads, call: int = 0) -> Model:
    """The model of a single process after a step with these gradients."""
    model, optimizer = copy.deepcopy(play.inputs[call][0][:2])
    for name, p in model.named_parameters():
        p.grad = grads.get(name)
    optimizer.step()
    return model


def weighted(parts: list[tuple[Grads, float, int]], weights: list[float]) -> tuple[Grads, float]:
    out = {n: sum((g[n] * w for (g, _, _), w in zip(parts, weights, strict=True)),
                  torch.zeros_like(t)) for n, t in parts[0][0].items()}  # fmt: skip
    return out, sum(loss * w for (_, loss, _), w in zip(parts, weights, strict=True))


def single_step(play: Play, call: int) -> list[Seen]:
    """One process, the union of all batches; what is left in .grad does not matter."""
    model, optimizer = copy.deepcopy(play.inputs[call][0][:2])
    model.zero_grad()
    x, y = union(play, call)
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    out = []
    for rank, args in enumerate(play.inputs[call]):
        want, got = copy.deepcopy(model), play.left(rank, call)
        now = dict(got.named_parameters()) if isinstance(got, nn.Module) else {}
        for name, p in want.named_parameters():
            force_grad(p, now[name].grad if name in now else None)
        out.append(Seen(loss.item(), (want, ANYTHING, *args[2:])))
    return out


def optimizers_agree(play: Play) -> Iterator[Finding]:
    """Equal optimizers before, equal optimizers after."""
    args = [play.got(r).args or () for r in ranks(play)]
    first, *others = (list(optimizer.state.values()) for _, optimizer, *_ in args)
    for rank, state in enumerate(others, 1):
        if not same(state, first, STEP):
            yield Finding("optimizer", "its optimizer's state is not that of rank 0", rank)


def params_are(play: Play, rank: int, want: Model, tolerance: float) -> bool:
    got = dict(play.left(rank).named_parameters())
    return all(n in got and same(got[n].data, p.data, tolerance)
               for n, p in want.named_parameters())  # fmt: skip


def loss_is(play: Play, rank: int, want: float, tolerance: float) -> bool:
    return same(play.got(rank).returned, want, tolerance)


STEP = 2e-5  # relative: a step in float32, summed in any order


class Steps:
    """What known mistakes would make of a play's batches: weights of the ranks' summed losses."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.parts = [local(play, r) for r in ranks(play)]
        self.sizes = [size for _, _, size in self.parts]
        self.n, self.all = len(self.sizes), sum(self.sizes)

    def model(self, weights: list[float]) -> Model:
        return stepped(self.play, weighted(self.parts, weights)[0])

    def loss(self, weights: list[float]) -> float:
        return weighted(self.parts, weights)[1]

    @property
    def right(self) -> list[float]:
        return [1 / self.all] * self.n

    def means(self, over: int) -> list[float]:
        """Every rank's mean counts equally, however large its batch is."""
        return [1 / size / over if size else 0.0 for size in self.sizes]

    def only(self, rank: int, weight: float) -> list[float]:
        return [weight if r == rank else 0.0 for r in range(self.n)]

    def step_is(self, weights: list[float]) -> bool:
        want = self.model(weights)
        return all(params_are(self.play, r, want, STEP) for r in ranks(self.play))

    def loss_is(self, weights: list[float]) -> bool:
        return all(loss_is(self.play, r, self.loss(weights), STEP) for r in ranks(self.play))


def left_over(p: Play) -> bool:
    return "gradients" in p.case.options


def some_empty(p: Play) -> bool:
    return 0 in p.case.options[SIZES]


def fresh(e: Evidence) -> list[Play]:
    """Plays in which a mistake in the weights can be told: nothing left over, no batch empty."""
    return [p for p in e.plays if not left_over(p) and not some_empty(p) and p.case.world > 1]


def step_by(*mistakes: Callable[[Steps], list[float]]) -> When:
    """In all fresh plays, some of which fail, the step is the one of one of these mistakes."""

    def when(e: Evidence) -> bool:
        plays = fresh(e)
        if not any(p in plays for p in e.failed) or not all(p.done for p in plays):
            return False
        steps = [Steps(p) for p in plays]
        return any(all(s.step_is(mistake(s)) for s in steps) for mistake in mistakes)

    return when


def own_step(p: Play) -> bool:
    """Every rank has taken the step of its own batch."""
    if not p.done:
        return False
    s = Steps(p)
    return any(all(params_are(p, r, s.model(s.only(r, w(s, r))), STEP) for r in ranks(p)) for w in (
        lambda s, r: 1 / max(1, s.sizes[r]), lambda s, r: 1 / s.all))  # fmt: skip


def right_step(p: Play) -> bool:
    return p.done and Steps(p).step_is(Steps(p).right)


def own_loss(p: Play) -> bool:
    """Every rank returns the mean or the sum of its own losses."""
    s = Steps(p)
    return p.done and any(all(loss_is(p, r, s.loss(s.only(r, w(r))), STEP) or s.sizes[r] == 0
                              for r in ranks(p)) for w in (
        lambda r: 1 / max(1, s.sizes[r]), lambda r: 1.0, lambda r: 1 / s.all))  # fmt: skip


def loss_of_means(p: Play) -> bool:
    s = Steps(p)
    return p.done and any(s.loss_is(s.means(k)) for k in (s.n, s.n - s.sizes.count(0)))


def not_a_number(p: Play) -> bool:
    """NaN came back, on some rank at least."""
    return p.done and any(isinstance(v := p.got(r).returned, float) and v != v for r in ranks(p))


def not_stepped(p: Play) -> bool:
    return p.done and all(params_are(p, r, p.given(r), 1e-7) for r in ranks(p))


def step_core(rng: random.Random) -> list[Case]:
    def cases(kind: str, *sizes: tuple[int, ...], **more: Any) -> list[Case]:
        return [Case(len(s), options={"model": kind, SIZES: s, **more}, seed=rng.randrange(99))
                for s in sizes]  # fmt: skip

    return [*cases("one layer", (2, 2), (3, 3, 3), (1, 3), (4, 1, 2), (2, 5, 1, 1)),
            *cases("two layers", (2, 2), (1, 2, 4), (6, 1, 1, 1, 2)),
            *cases("one layer", (3, 0), (0, 2, 1), (0, 0, 3, 1)),
            *cases("one layer", (2, 2), (1, 3), (2, 0), gradients="left over"),
            *cases("two layers", (2, 3), (1, 2, 3), momentum=0.9),
            *cases("two layers", (2, 3), (2, 1, 2), **{GROUPS: 2}),
            *cases("digits", (2, 3), (1, 0, 2), momentum=0.9)]  # fmt: skip


def step_sturdy(rng: random.Random) -> list[Case]:
    both_ways = {"gradients": "left over", "momentum": 0.9}
    ones = crowd(rng) - 2
    return [Case(1, options={"model": "two layers", SIZES: (3,)}),
            Case(1, options={"model": "two layers", SIZES: (3,), **both_ways}),
            Case(8, options={"model": "two layers", SIZES: (1, 2, 0, 4, 1, 1, 0, 3)}),
            Case(2 + ones, options={"model": "one layer", SIZES: (1, 2) + ones * (1,)}),
            Case(2, calls=2, options={"model": "one layer", SIZES: (2, 2)},
                 later=({SIZES: (1, 1)},)),
            *(Case(2, options={"model": "first layer frozen", SIZES: (2, 1), **moves})
              for moves in ({"gradients": "left over"}, both_ways)),
            Case(3, dtype="float64", options={"model": "two layers", SIZES: (2, 0, 3)}),
            Case(3, dtype="float64", options={"model": "digits", SIZES: (4, 1, 3), **both_ways}),
            Case(3, layout="transposed", options={"model": "two layers", SIZES: (2, 1, 3)}),
            *(Case(3, options={"model": m, SIZES: (2, 1, 3)}) for m in (
                "first layer frozen", "a shared weight", "buffers",
                "a scale of its own"))]  # fmt: skip


def smaller_steps(case: Case) -> Iterator[Case]:
    """Fewer ranks, smaller batches, a smaller model; what else the case has is kept."""
    sizes = [(1,), (1, 1), (1, 2), (1, 0), (0, 1), (2, 1), (1, 1, 1), (1, 0, 2)]
    for s in sizes:
        if len(s) <= case.world and (0 in s) == (0 in case.options[SIZES]):
            for kind in dict.fromkeys(("one layer", case.options["model"])):
                for seed in range(2):
                    yield Case(len(s), dtype=case.dtype, seed=seed,
                               options={**case.options, "model": kind, SIZES: s})  # fmt: skip


declare(Exercise(
    "05.4", "train_step",
    inputs=step_inputs,
    expected=single_step,
    core=step_core,
    sturdy=step_sturdy,
    fits=lambda case: case.world > 1,
    smaller=smaller_steps,
    tolerance=STEP,
    needs=BY_OPTIMIZERS,
    length_is="",
    rules=[weights_not_replaced, flags_kept, optimizers_agree],
    diagnoses=[
        NOTHING_SENT,
        Diagnosis("optimizers-differ", "Every rank has the right weights, and the optimizers' "
                  "states differ: not every optimizer has taken the step, or not with the same "
                  "gradient.",
                  every(lambda p: p.kinds() == {"optimizer"})),
        Diagnosis("empty-batch-leaves", "A rank whose batch is empty leaves, and the others wait "
                  "for it: it has nothing to add, and has to take part all the same.",
                  both(only_where(some_empty), every(talks_past))),
        NOT_EVERYBODY,
        Diagnosis("no-step", "No weight has changed. Whose step is it that nobody takes?",
                  every(not_stepped)),
        Diagnosis("steps-first", "Every rank has taken a step of its own, and their weights part "
                  "ways. What has to be there before the step?",
                  both(every(lambda p: left_over(p) or some_empty(p) or own_step(p)),
                       some(lambda p: not left_over(p) and not some_empty(p)))),
        Diagnosis("sum", "The step is n times too long: n means have been added up.",
                  step_by(lambda s: s.means(1))),
        Diagnosis("rank-count", "The step is too short, or too long, by a factor: sums over "
                  "samples go with the number of samples, and means with the number of ranks.",
                  step_by(lambda s: [1 / s.all / s.n] * s.n, lambda s: [1 / s.n] * s.n,
                          lambda s: [1.0] * s.n)),
        Diagnosis("mean-of-means", "A sample counts for more on a rank that has few: look at a "
                  "batch of 1 beside one of 3.", both(
                      step_by(lambda s: s.means(s.n)),
                      every(lambda p: left_over(p) or len(set(p.case.options[SIZES])) > 1))),
        Diagnosis("loss-mean-of-means", "The step is right. The loss that is returned counts every "
                  "rank equally, however many samples it has.",
                  every(lambda p: right_step(p) and loss_of_means(p))),
        Diagnosis("local-loss", "The step is right. The loss that is returned is this rank's, not "
                  "everybody's.", every(lambda p: right_step(p) and own_loss(p))),
        Diagnosis("stale-gradients", "It is wrong only where gradients were left over from before: "
                  "one of them has a part in the step.", only_where(left_over)),
        Diagnosis("empty-batch-nan", "It is wrong only where some rank's batch is empty: the mean "
                  "of nothing is 0/0, and one NaN makes every sum NaN.",
                  both(only_where(some_empty), every(not_a_number))),
        Diagnosis("empty-batch", "It is wrong only where some rank's batch is empty. What does "
                  "such a rank add to a sum over all samples, and which step does it take?",
                  only_where(some_empty)),
        REPLACES, ALONE, DISAGREE,
    ],
))  # fmt: skip
