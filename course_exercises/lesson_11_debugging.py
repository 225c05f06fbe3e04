"""Lesson 11: a test that is judged; where replicas part; who has cost how many seconds."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from course_check.cases import Case, crowd
from course_check.exercise import Finding, Play
from course_check.usual_diagnoses import found, says
from course_exercises.declare import each, exercise, marked
from course_exercises.drivers.driven import Salted
from course_exercises.drivers.suspect import BEFORE, FAILS, NEVER, PASSES, RIGHT, WRONG, Suspect
from course_exercises.models import WORDS, model
from course_lib.errors import CourseError, Deadlock, RankFailed

# ---- 11.1 test_all_reduce ------------------------------------------------------------------------

HOW = "all_reduce"  # the name of an option
(KEEPS, REST, TIMES, MISSING, NEW, FLOATS, STALE, LARGEST, OVER) = WRONG
OWN, BACKWARDS = "torch's own", "gathers, adds from the last rank on"
NOWHERE: dict[int, str] = {}
CHANGE = {REST, TIMES, FLOATS, STALE, OVER}  # each rank's tensor is changed, and is wrong
SEEN_ALIKE = {MISSING, LARGEST, STALE, FLOATS, OVER}  # all ranks have the same, and it is wrong
ALWAYS, MORE, SEVERAL = range(1, 9), range(2, 9), range(3, 9)  # ranks, where a mistake is made
SUSPECTS: dict[str, str | None] = {
    KEEPS: "the last rank keeps its own tensor. Which ranks look at what they have?",
    REST: "elements that do not divide among the ranks are left out. How long is a tensor whose "
    "parts are not all equal, for any number of ranks?",
    TIMES: "nobody says a word, and each rank multiplies its own tensor by n. For which inputs is "
    "that the sum?",
    MISSING: "the last rank's numbers are not in the sum. In which of your inputs would they be "
    "missed, and what is the sum compared with?",
    NEW: "the sum is returned, and the argument stays as it was. Which of the two do you look at?",
    FLOATS: "integers go through float32. Which integers can float32 not hold, and "
    "does the comparison see their last digit?",
    STALE: "the second tensor of a shape gets the first one's sum. How often do you call it, and "
    "with what?",
    LARGEST: "the largest number is taken for the sum. For which inputs are the two equal?",
    OVER: "what lies between the elements of a strided view is overwritten. Who looks at the "
    "rest of the tensor that the view is a part of?",
}


def judged(
    given: list[tuple[Suspect]],
    passes: Collection[str] = (),
    refuses: Collection[str] = (),
    outcome: str = PASSES,
    when: Collection[int] = ALWAYS,
    on: Mapping[int, str] = NOWHERE,
) -> None:
    """The test fails for each wrong one, and comes through for each right one. The rest are
    mistakes; ``on`` names one more that passes on so many ranks."""
    how = given[0][0].how
    turned = how in passes or how in refuses or on.get(len(given)) == how
    through = (how in RIGHT) is not (turned and len(given) in when)
    for (suspect,) in given:
        suspect.says(outcome if through else FAILS)


def ways(*when: Collection[int], **knobs: Any) -> list[dict[str, Any]]:
    """The mistake, made on some numbers of ranks."""
    return [knobs | {"when": one} for one in when]


def suspects(names: Iterable[str], *worlds: int) -> list[Case]:
    return [Case(world, options={HOW: how}) for how in names for world in worlds]


def of_a_wrong_one(kind: type[CourseError]) -> Callable[[Play], bool]:
    """The test of a wrong one ends so; those of right ones are played first."""
    return lambda play: isinstance(play.error, kind) and play.case.options[HOW] in WRONG


exercise(
    "11.1 test_all_reduce",
    judged,
    inputs=lambda case, rank: (Suspect(case.options[HOW], rank),),
    words=SUSPECTS | {how: f"a right one is played: {how}. How does it add?" for how in RIGHT},
    core=lambda rng: [
        *suspects([OWN], 2),
        *suspects([*RIGHT, *WRONG], 3),
        *suspects(WRONG, 2),
    ],
    sturdy=lambda rng: suspects(RIGHT, 1, 4),
    blank=False,
    hints={
        "returns-verdict": "The test returns what it has found out, and nobody looks at that. A "
        "test fails by raising AssertionError.",
        "uses-returned": "all_reduce works in place and returns nothing. Look at the tensor that "
        "it was given.",
        "another-error": "For a wrong all_reduce this raises another error. A test says that "
        "something is wrong by AssertionError; any other error says that the test is broken.",
        "swallowed": "With a wrong all_reduce a rank leaves the test early, without an error, and "
        "the others go on. A rank that has found something wrong has to raise.",
        "asserts-before": "An assertion fails before all_reduce has been called: what is it about?",
        "unlike-inputs": "Ranks give one call tensors of different shapes or dtypes. Only the "
        "numbers may differ between ranks. (Or does a rank skip a call?)",
        "never-called": "The test never calls the function that it is given.",
        "expects-new": "The right ones fail, and the one that returns a new tensor passes. "
        "all_reduce works in place.",
        "always-fails": "Right ones fail as well. Is what it expects made from copies, before the "
        "call? Can its dtype hold the sum? Does it look at x, as nothing is returned?",
        "last-bits": "It refuses a right one that adds in another order. The last bits of floats "
        "depend on that order: compare small integers, or allow for a tolerance.",
        "one-world": "For some numbers of ranks it refuses right ones, for others it does not. Is "
        "a number of ranks written down in it? Does it ask for a change where one rank has none? "
        "Or does the sum of more ranks no longer fit the dtype? (int8 ends at 127.)",
        "never-fails": "No wrong one is caught. Can the assertion fail at all? (A tuple is true: "
        "assert (x, 'text') never fails.) Is x compared with itself, under another name? Or with "
        "what the function has computed a second time, wrong in the same way?",
        "only-changed": "It is caught that a tensor stays as it was, and nothing else. A wrong sum "
        "is a change, too: with which numbers could you compare it?",
        "only-alike": "It is caught that ranks have different tensors, and nothing else. All "
        "ranks can have the same wrong numbers: with what does each compare its own?",
        **{f"past-{n}": f"What gets past: {text}" for n, text in enumerate(SUSPECTS.values(), 1)},
        "refused": "A right all_reduce is refused. What does the test take for granted about how "
        "it goes, or about the tensor that is named?",
    },
    mistakes={
        "never-called": {"passes": WRONG, "outcome": NEVER},
        "expects-new": {"passes": [NEW], "refuses": RIGHT},
        "always-fails": ways(ALWAYS, MORE, refuses=RIGHT),
        "one-world": ways([1, 3, 4], [1, 2, 4], [3, 4], [1, 4], [4], [1], refuses=RIGHT),
        "last-bits": {"refuses": [BACKWARDS], "when": SEVERAL},
        "never-fails": {"passes": WRONG},
        "only-changed": [
            {"passes": CHANGE, "on": {3: MISSING}},
            {"passes": CHANGE | {LARGEST}, "on": {3: MISSING}},
        ],
        "only-alike": [{"passes": SEEN_ALIKE}, {"passes": SEEN_ALIKE - {OVER}}],
        **{f"past-{n}": ways(ALWAYS, [2], SEVERAL, passes=[how]) for n, how in enumerate(WRONG, 1)},
        "refused": [
            way
            for how in RIGHT
            if how not in (OWN, BACKWARDS)
            for way in ways(ALWAYS, MORE, refuses=[how])
        ],
    },
    diagnoses={
        "returns-verdict": found("ReturnsFalse"),
        "uses-returned": says("NoneType"),
        "unlike-inputs": says("agree on the shape", "agree on the dtype"),
        "another-error": of_a_wrong_one(RankFailed),
        "swallowed": of_a_wrong_one(Deadlock),
        "asserts-before": lambda p: BEFORE in p.caught,
    },
)


# ---- 11.2 first_difference -----------------------------------------------------------------------

DIFFERS, BY, SALT = "differs", "by", "hash of text"  # names of options
SIGN, LAST_BIT, SWAPPED, MIDDLE = "a zero's sign", "a last bit", "two numbers swapped", "one number"
A_NAN, NAN_BITS, SALTED = "nothing, with a NaN", "a NaN's bits", "another in each process"
CHECKSUM = "numbers, not their checksum"  # adler32 and crc32 of these four are equal
UNEQUAL = "c909a43fd173a83f0dc54c3f9cfd4a3f", "19dc3c3fcedbaa3fab0f9d3f00fa8e3f"
Tensors = list[tuple[str, Tensor]]
Place = tuple[str, int] | None


def parting(case: Case, rank: int) -> tuple:
    """The same model on every rank, but for the tensors that the case names: ``name@rank``."""
    made, by = model(case, "all"), case.options.get(BY, "")
    state = dict(everything(made))
    if by == A_NAN:
        next(iter(state.values())).view(-1)[0] = torch.nan
    for name, on in (place.split("@") for place in case.options.get(DIFFERS, ())):
        change(state[name], by, int(on) == rank)
    return (Salted(made, rank) if SALT in case.options else made,)


def change(t: Tensor, by: str, here: bool) -> None:
    """Make a tensor another one where it is ``here``."""
    flat = t.flatten().clone()
    if by == SIGN:
        flat[0] = -0.0 if here else 0.0
    elif by == SWAPPED and here:
        flat[:2] = flat[:2].flip(0)
    elif by == MIDDLE and here:
        flat[len(flat) // 2] += 1
    elif by == CHECKSUM:
        flat = torch.frombuffer(bytearray.fromhex(UNEQUAL[here]), dtype=flat.dtype)
    elif by == NAN_BITS:
        flat[0] = torch.nan
        flat.view(torch.int32)[0] += here
    elif by == LAST_BIT and here:
        flat = torch.nextafter(flat, torch.full_like(flat, torch.inf))
    elif here:
        flat += 1
    t.copy_(flat.view(t.shape))


def everything(made: nn.Module) -> Tensors:
    named = (*made.named_parameters(), *made.named_buffers())
    return [(name, t.detach()) for name, t in named]


def saved(made: nn.Module) -> Tensors:
    kept = made.state_dict()
    return [(name, t) for name, t in everything(made) if name in kept]


def buffers_first(made: nn.Module) -> Tensors:
    return [*made.named_buffers(), *made.named_parameters()]


def trained(made: nn.Module) -> Tensors:
    frozen = {name for name, p in made.named_parameters() if not p.requires_grad}
    return [(name, t) for name, t in everything(made) if name not in frozen]


def bits(t: Tensor) -> Any:
    return t.contiguous().reshape(-1).view(torch.uint8).tolist() if t.numel() else []


def as_one(made: nn.Module) -> Tensors:
    named = everything(made)
    raw = [byte for _, t in named for byte in bits(t)]
    return [(named[0][0], torch.tensor(raw, dtype=torch.uint8))]


def in_order_of_ranks(differ: dict[str, list[int]]) -> Place:
    """The lowest rank that has any difference, and its first one."""
    return min(((name, min(ranks)) for name, ranks in differ.items()), key=lambda place: place[1])


def first_one(differ: dict[str, list[int]], which: Callable[[list[int]], int] = min) -> tuple:
    name, ranks = next(iter(differ.items()))
    return name, which(ranks)


def parted(
    given: list[tuple],
    tensors: Callable[[nn.Module], Tensors] = everything,
    sees: Callable[[Tensor], Any] = bits,
    told: Callable[[dict[str, list[int]]], Place] = first_one,
    asked: Callable[[int], range] = lambda n: range(1, n),
    against: Callable[[int, int], int] = lambda r, n: 0,
    by_each: Callable[[int], dict[str, Any]] | None = None,
    salted: bool = False,
) -> list:
    """The first tensor that is not rank 0's everywhere, and where. The rest are mistakes."""
    n = len(given)
    if by_each:
        return [parted(given, **by_each(r))[r] for r in range(n)]
    by_rank = [tensors(getattr(made, "model", made)) for (made,) in given]
    differ: dict[str, list[int]] = {}
    for own in zip(*by_rank, strict=True):
        seen = [sees(t) for _, t in own]
        by_salt = salted and isinstance(given[0][0], Salted)
        if ranks := [r for r in asked(n) if seen[r] != seen[against(r, n)] or by_salt]:
            differ[own[0][0]] = ranks
    return [told(differ) if differ else None] * n


def gives_little(play: Play) -> Iterator[Finding]:
    """What a rank gives, in all its calls together: 100 bytes a tensor, and 256."""
    made = play.given(0)
    most = 100 * len(everything(getattr(made, "model", made))) + 256
    for rank in play.ranks:
        given = sum(event.bytes_in for event in play.trace.of(rank))
        if given > most:
            text = f"rank {rank} gives {given} bytes, at most {most} are allowed"
            yield Finding("sends-tensors", text)


def part(kind: str, differs: str = "", *worlds: int, by: str = "", **rest: Any) -> list[Case]:
    """The case in these worlds; without a difference it has none."""
    told = {DIFFERS: differs.split(), BY: by}
    options = {"model": kind, **{name: what for name, what in told.items() if what}}
    return [Case(world, options=options | rest.pop("options", {}), **rest) for world in worlds]


exercise(
    "11.2 first_difference",
    parted,
    inputs=parting,
    words=WORDS
    | {
        SIGN: "a zero has another sign: 0.0 == -0.0. Which comparison sees bits?",
        LAST_BIT: "the last bits differ. Bit-equal is asked for.",
        SWAPPED: "two numbers have changed places. Their sum is what it was.",
        MIDDLE: "one number of a large tensor differs. How much of it is looked at?",
        A_NAN: "there is a NaN, the same on all ranks: its bits are equal.",
        **dict.fromkeys([NAN_BITS, CHECKSUM]),
        SALTED: "hash() is another one in each process, as under torchrun.",
    },
    core=lambda rng: [
        *part("one layer", "", 2, 3),
        *part("one layer", "linear.weight@1", 2),
        *part("one layer", "linear.bias@1", 2, 4),
        *part("one layer", "linear.weight@0", 3),
        *part("two layers", "first.weight@2 first.bias@1 second.weight@2", 3),
        *part("two layers", "first.weight@3 first.weight@2 second.bias@1", 4),
        *part("two layers", "second.weight@2", 3, by=SWAPPED),
        *part("first layer frozen", "first.bias@1", 2),
        *part("a large layer", "linear.weight@1", 2, by=MIDDLE),
        *part("one layer", "linear.bias@1", 2, by=LAST_BIT),
        *part("six layers", "", 2),
        *part("buffers between", "counts.mean@1", 2),
        *part("buffers between", "counts.cache@1", 2),
        *part("buffers between", "counts.count@1 second.weight@2", 3),
        *part("one layer", "", 2, options={SALT: SALTED}),
    ],
    sturdy=lambda rng: [
        *part("buffers", "", 1, crowd(rng)),
        *part("one layer", "linear.weight@1", 2, by=SIGN),
        *part("one layer", "", 2, by=A_NAN),
        *part("one layer", "linear.bias@1", 2, by=NAN_BITS),
        *part("one layer", "linear.weight@1", 2, by=CHECKSUM),
        *part("an empty weight", "second.weight@1", 2),
        *part("two layers", "second.bias@1", 2, dtype="bfloat16"),
        *part("two layers", "second.weight@1", 2, layout="transposed", by=SWAPPED),
        *part("buffers", "counts.count@1", 2, numbers="large"),
        *part("two layers", "first.bias@2", 3, calls=2, later=({DIFFERS: ["second.bias@1"]},)),
    ],
    budget=[gives_little],
    hints={
        "salted-hash": "Python's hash() of text and bytes is salted, and so differs between the "
        "processes that torchrun starts. hashlib's digests are the same everywhere.",
        "local": "Ranks come to different answers. What one of them has found has to reach all.",
        "own-for-rank-0": "Each rank compares the others with itself, and so the answers differ. "
        "Rank 0's tensors are what all are compared with, on every rank.",
        "nan-differs": "A NaN is not equal to itself, but its bits are.",
        "nan-bits": "Two NaNs with different bits pass for equal: as text, or once replaced, all "
        "NaNs are the same.",
        "checksum": "A checksum (adler32, crc32) finds a faulty line, but different numbers can "
        "share one. hashlib.sha256 is a digest: no two inputs with an equal one are known.",
        "zero-sign": "0.0 and −0.0 are equal as numbers, and have other bits.",
        "as-text": "Printed, a number has four digits, and a large tensor only a few numbers.",
        "sums": "Sums can be equal where the numbers are not: two have changed places, one is up "
        "and another down.",
        "tolerance": "Numbers that differ in the last bit pass for equal. Bit-equal is asked for.",
        "through-float32": "The numbers pass through float32, which does not hold all bits of a "
        "wider dtype, nor large integers.",
        "parameters-only": "Buffers are part of the model as well, and one of them differs here.",
        "trained-only": "Frozen parameters are part of the model as well, and one of them differs.",
        "state-dict-order": "state_dict() lacks the buffers that are not saved with the model, and "
        "goes layer by layer. Go through all parameters, and then all buffers.",
        "saved-only": "Buffers that are not saved with the model are part of it as well. One of "
        "them differs here, and state_dict() lacks it.",
        "buffers-first": "Buffers are looked at before parameters. Go through all parameters, "
        "and then all buffers.",
        "one-rank-asked": "One rank alone is compared with rank 0. Any of them may differ.",
        "neighbours": "Each rank is compared with its neighbour, and where one parts, so does the "
        "next one that has not. The question is who differs from rank 0.",
        "as-one": "One digest of all tensors tells that some differ, and not which: here the name "
        "is that of the first one, whatever differs.",
        "another-rank": "The tensor is right, and the rank is not. Name the lowest rank that "
        "differs from rank 0, counted from 0.",
        "rank-before-name": "Return a name and a rank, in this order.",
        "by-rank": "Of several tensors that differ, the first in order is asked for, whichever "
        "rank it is on.",
        "last-tensor": "Several tensors differ. Asked for is the first of them.",
        "sends-tensors": "More bytes travel than digests need: 32 of them tell whether two tensors "
        "are equal.",
    },
    mistakes={
        "salted-hash": {"salted": True},
        "local": {"by_each": lambda me: {"asked": lambda n: range(me, me + 1)}},
        "own-for-rank-0": {"by_each": lambda me: {"asked": range, "against": lambda r, n: me}},
        "nan-differs": {"sees": lambda t: [float(v) for v in t.flatten()]},
        "nan-bits": {"sees": lambda t: repr(t.tolist())},
        "checksum": each(
            sees=(lambda t: zlib.adler32(bytes(bits(t))), lambda t: zlib.crc32(bytes(bits(t))))
        ),
        "zero-sign": {"sees": lambda t: [v + 0 if v == v else "NaN" for v in t.flatten().tolist()]},
        "sums": {"sees": lambda t: t.double().sum().item()},
        "as-text": {"sees": str},
        "tolerance": {"sees": lambda t: (t.double() * 1e4).round().tolist()},
        "through-float32": {"sees": lambda t: bits(t.float())},
        "parameters-only": {"tensors": lambda made: [*made.named_parameters()]},
        "state-dict-order": {"tensors": lambda made: [*made.state_dict().items()]},
        "saved-only": {"tensors": saved},
        "buffers-first": {"tensors": buffers_first},
        "trained-only": {"tensors": trained},
        "one-rank-asked": [
            {"asked": lambda n: range(1, min(n, 2))},
            {"asked": lambda n: range(max(n - 1, 1), n)},
        ],
        "neighbours": [
            {"asked": range, "against": lambda r, n: (r - 1) % n},
            {"against": lambda r, n: r - 1, "told": lambda differ: first_one(differ, max)},
        ],
        "as-one": {"tensors": as_one},
        "another-rank": each(
            told=[partial(first_one, which=w) for w in (max, lambda r: 0, lambda r: 1)]
        ),
        "rank-before-name": {"told": lambda differ: first_one(differ)[::-1]},
        "by-rank": {"told": in_order_of_ranks},
        "last-tensor": {"told": lambda differ: first_one(dict([*differ.items()][::-1]))},
    },
)

# ---- 11.3 seconds_lost ---------------------------------------------------------------------------

CALLS = "calls"
Times = list[float]


def all_together(entries: Tensor) -> Tensor:
    """What the others have waited for the last one, each from its own entry."""
    return (entries.max() - entries).sum()


def lost(
    given: list[tuple[list[Times]]],
    blamed: Callable[[Tensor, Tensor], Tensor] = lambda entries, calls: entries.argmax(),
    waited: Callable[[Tensor], Tensor | float] = all_together,
    shares: Callable[[Tensor], Tensor] | None = None,
    taken: Callable[[Tensor], Tensor] = lambda calls: calls,
    adds: bool = True,
) -> list:
    """By rank, the seconds that the others have waited for it. The rest are mistakes."""
    [(calls,)] = given
    if not calls:
        return [[]]
    times = taken(torch.tensor(calls, dtype=torch.float64))
    out = torch.zeros_like(times[0])
    for entries in times:
        if shares:
            out += shares(entries)
        else:
            culprit = blamed(entries, times)
            out[culprit] = out[culprit] * adds + waited(entries)
    return [out.tolist()]


def behind_the_next(entries: Tensor) -> Tensor:
    """How long those before it have waited from one entry to the next."""
    times, order = entries.sort(stable=True)
    waits = times.diff(prepend=times[:1]) * torch.arange(len(times))
    return waits[order.argsort()]


def each_of_ties(entries: Tensor) -> Tensor:
    return all_together(entries) * (entries == entries.max())


def entered(*calls: Times) -> Case:
    """A case of these entries; its length is how many there are."""
    return Case(1, sum(map(len, calls)), options={CALLS: [*calls]})


def drawn(rng: Any, ranks: int, calls: int) -> Case:
    times = [[4 * k + t / 8 for t in rng.sample(range(32), ranks)] for k in range(calls)]
    return entered(*times)


exercise(
    "11.3 seconds_lost",
    lost,
    inputs=lambda case, rank: (case.options[CALLS],),
    core=lambda rng: [
        entered([0.0, 1.0]),
        entered([1.0, 0.0]),
        entered([0.0, 1.0, 4.0]),
        entered([0.0, 0.5, 2.0], [4.0, 2.5, 2.25]),
        entered([0.0, 1.0, 3.0], [5.0, 4.0, 3.5], [6.0, 7.0, 9.0]),
        drawn(rng, 4, 3),
        drawn(rng, 5, 4),
    ],
    sturdy=lambda rng: [
        entered(),
        entered([0.5]),
        entered([1.0, 1.0]),
        entered([0.0, 2.0, 2.0]),
        entered([0.0, 2.0, 2.0], [5.0, 5.0, 3.0]),
        entered([-3.0, -1.0]),
        Case(1, 2, calls=2, options={CALLS: [[0.0, 1.0]]}, later=({CALLS: [[2.0, 0.0]]},)),
        drawn(rng, 16, 6),
    ],
    special=lambda case: marked({"calls": case.calls > 1, "no calls": not case.options[CALLS]}),
    words={"no calls": "there are no calls, and so no ranks. What is the list then?"},
    in_ranks=False,
    tolerance=1e-9,
    hints={
        "who-waits": "That is how long each rank has waited. The question is for whom.",
        "first-for-last": "The one that comes first keeps nobody waiting.",
        "every-late-one": "Only the last one is waited for: nobody goes on when another comes.",
        "to-the-mean": "Divided by the number of ranks, or measured from the mean: but each of the "
        "others waits from its own entry, and all their waits are added up.",
        "only-one": "Only one of the others is counted. All of them have waited.",
        "all-from-the-first": "Not all have waited since the first came: each of the others waits "
        "from its own entry.",
        "since-the-start": "Nobody has waited since second 0: each of the others waits from its "
        "own entry.",
        "counts": "That is in how many calls each rank is the last. Return seconds.",
        "from-zero": "Times may be negative, as a clock has its zero anywhere.",
        "one-for-all": "Each call has a last rank of its own, and it pays for that call alone.",
        "since-the-last-call": "Who has computed longest since the call before need not be the "
        "last to come. What counts is when each enters.",
        "last-time-only": "A rank can be the last in several calls, and all of them count.",
        "by-call": "Place k of the list has call k's seconds. Return a list by rank: whose "
        "entry was the last?",
        "swapped": "calls[k] is one call, and calls[k][r] rank r's entry: here it is read as if "
        "calls[r] were one rank.",
        "tie": "Several ranks come last together. Then the lowest of them is the one that counts.",
    },
    mistakes={
        "who-waits": {"shares": lambda entries: entries.max() - entries},
        "first-for-last": {"blamed": lambda entries, calls: entries.argmin()},
        "every-late-one": each(
            shares=(
                lambda entries: entries - entries.min(),
                lambda entries: (entries[:, None] - entries).clamp(min=0).sum(1),
                behind_the_next,
            )
        ),
        "to-the-mean": [
            {"shares": lambda entries: (entries - entries.mean()).clamp(min=0)},
            {"waited": lambda entries: all_together(entries) / len(entries)},
            {"waited": lambda entries: all_together(entries) / max(1, len(entries) - 1)},
        ],
        "only-one": each(
            waited=(lambda e: e.sort().values.diff()[-1:].sum(), lambda e: e.max() - e.min())
        ),
        "all-from-the-first": {"waited": lambda e: (e.max() - e.min()) * (len(e) - 1)},
        "since-the-start": each(waited=[lambda e: e.max() * (len(e) - 1), Tensor.max]),
        "counts": {"waited": lambda entries: 1.0},
        "one-for-all": {"blamed": lambda entries, calls: calls.argmax(1).bincount().argmax()},
        "by-call": {"blamed": lambda e, calls: (calls == e).all(1).nonzero()[0, 0] % len(e)},
        "from-zero": {
            "blamed": lambda entries, calls: entries.clamp(min=0).argmax(),
            "waited": lambda entries: (entries.max().clamp(min=0) - entries).sum(),
        },
        "since-the-last-call": {"taken": lambda calls: calls.diff(dim=0, prepend=0 * calls[:1])},
        "tie": [
            {"blamed": lambda entries, calls: len(entries) - 1 - entries.flip(0).argmax()},
            {"shares": each_of_ties},
            {"shares": lambda e: each_of_ties(e) / (e == e.max()).sum()},
        ],
        "last-time-only": {"adds": False},
        "swapped": {"taken": torch.t},
    },
)
