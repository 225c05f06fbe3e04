"""From what was seen to one explanation, and how to know it again in a smaller case.

    1  the shown play     the smallest that fails in the gravest way
    2  its like           failing plays with no feature that the shown one lacks
    3  an explanation     true of all of these, and contradicted by no play that passed:
                          an error's own, a mistake that predicts what came back, a pattern
    4  only with …        features that all failing plays have and no passing one has

A mistake is compared facet by facet: what was returned, the gradients, what is left in tensors.
So of two mistakes at once the first wrong facet is explained, and after it is mended the next.
Evidence is values, errors and the trace. Never the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from course_lib.beside.seen import Seen
from course_lib.checks.cases import SPREAD, clause
from course_lib.checks.compare import held_otherwise, same_but_for
from course_lib.checks.exercise import (
    Diagnosis,
    Exercise,
    Finding,
    Mistake,
    Outcome,
    Play,
    Right,
    untouched,
)
from course_lib.checks.judge import which_differ
from course_lib.checks.rules import PATTERNS, trace_of
from course_lib.errors import Blocked, CourseError, Deadlock, Mismatch

OfPlay = Callable[[Play], bool]
MEMORY = ("shared", "argument's memory", "earlier memory", "replaced")  # findings, see judge.NOTES


@dataclass
class Level:
    """One level of an exercise: its plays, which of them fail, and why."""

    name: str
    plays: list[Play]
    failed: list[Play]
    reached: bool = True  # False: an earlier case hung or died, and this level was not played out
    besides: Sequence[Play] = ()  # plays of another level
    explanation: Diagnosis | None = None
    play: Play | None = None  # the case that shows how it fails
    asks: bool = True  # the result depends on what others have
    case: str = ""  # the same in words

    @property
    def passed(self) -> bool:
        return self.reached and not self.failed

    @property
    def fine(self) -> list[Play]:
        """Plays that do not fail, those of another level among them."""
        return [p for p in [*self.besides, *self.plays] if not p.findings and p not in self.failed]

    @property
    def findings(self) -> list[Finding]:
        """What is wrong in the case that is shown."""
        return self.play.findings or self.play.over_budget if self.play else []


# ---- what a play tells by itself -----------------------------------------------------------------


def found(*kinds: str) -> OfPlay:
    """The play has a finding of one of these kinds, or ended in such an error: a class's name, or
    the kind of a hazard. A plain CourseError says that something cannot travel."""
    return lambda p: bool(p.kinds() & set(kinds))


def only(*kinds: str) -> OfPlay:
    """The play came to its end, and has findings of these kinds and no others."""
    return lambda p: p.done and bool(p.kinds()) and p.kinds() <= set(kinds)


def all_wait_in(call: str) -> OfPlay:
    """Every rank of the world waits, in this call (``send``, ``recv``)."""
    return lambda p: (
        isinstance(p.error, Blocked)
        and len(p.error.waits) == p.case.world
        and all(call in w.call for w in p.error.waits)
    )


def right_but_for(what: str) -> OfPlay:
    """Only the ``shape`` or the ``dtype`` of what is returned is not right."""
    return lambda p: (
        only("returned")(p) and all(same_but_for(what, f.got, f.want) for f in p.findings)
    )


def two_dtypes(p: Play) -> bool:
    """Tensors of different dtypes meet in one line's call, or in a send and its recv."""
    if not isinstance(p.error, Mismatch) or p.error.what != "dtype":
        return False
    return len(set(p.error.lines)) == 1 or "recv" in str(p.error)


def wait_in_collective(p: Play) -> bool:
    """Some rank waits in a collective."""
    messages = "send", "recv", "isend", "irecv"
    waits = p.error.waits if isinstance(p.error, Blocked) else []
    return any(not w.call.startswith(messages) for w in waits)


def says(*words: str) -> OfPlay:
    """The error's first line has one of these in it."""
    return lambda p: any(w in str(p.error).partition("\n")[0] for w in words)


CUT_OFF = [  # of what ended all play, or never began
    Diagnosis(
        "signature",
        "Keep the function's name and its arguments as the stub has them.",
        found("BadSignature"),
    ),
    Diagnosis(
        "breaks-the-check",
        "Does the answer change torch or course_lib itself? If it does "
        "not, the mistake is ours: please report it.",
        found("Broken"),
    ),
    Diagnosis(
        "import",
        "The file has to run by itself, before anything in it is called.",
        found("AtImport"),
    ),
    Diagnosis(
        "starts-process",
        "A rank is a process already. It starts no other one, and ends by returning.",
        says("start or end processes"),
    ),
    Diagnosis(
        "exits",
        "Leave the function by return. A rank that ends itself leaves the others waiting.",
        found("CalledExit", "RankDied"),
    ),
    Diagnosis(
        "cannot-travel",
        "What the function uses from outside has to be sent to each rank, "
        "and this cannot be: make it inside the function.",
        found("CourseError"),
    ),
    Diagnosis(
        "hangs",
        "It was still busy when its time was up, and no message was on its way. "
        "Which loop, pause or call does not end?",
        found("Hang"),
    ),
]
ERRORS = [
    Diagnosis(
        "one-buffer",
        "Several results go into one tensor: only what comes last stays in "
        "it. How many tensors are needed? ([box] * n is one tensor in n places.)",
        lambda p: (
            found("shared")(p)
            or (found("written before wait")(p) and says("fills the same tensor")(p))
        ),
    ),
    Diagnosis(
        "strided",
        "The call wants tensors whose elements lie side by side, and here they do "
        "not. contiguous() gives such a copy; empty_like() and clone() keep the "
        "strides, unless memory_format=torch.contiguous_format says otherwise.",
        says("has to be contiguous", "must be contiguous"),
    ),
    Diagnosis(
        "read-before-wait",
        "What irecv fills, or a collective with async_op=True, may be "
        "read only after wait() has returned.",
        found("read before wait"),
    ),
    Diagnosis(
        "never-waited",
        "Each isend, each irecv, and each collective with async_op=True "
        "returns a Work. Keep it, and wait for it before the function returns.",
        found("never waited for"),
    ),
    Diagnosis(
        "written-before-wait",
        "What isend sends, and what irecv or a collective with "
        "async_op=True fills, may be written only after wait() has returned.",
        found("written before wait"),
    ),
    Diagnosis(
        "send-first",
        "Every rank sends first, and a send may wait for its recv: nobody is "
        "left to receive. Who could receive first, or which call starts a message without "
        "waiting for it?",
        all_wait_in("send"),
    ),
    Diagnosis(
        "receive-first",
        "Every rank waits for a message that nobody has sent yet. Who could send first?",
        all_wait_in("recv"),
    ),
    Diagnosis(
        "talks-to-itself",
        "No message goes from a rank to itself. Which line names it as its own peer?",
        says("same as the rank of the current process", "itself"),
    ),
    Diagnosis(
        "no-such-rank",
        "Ranks are counted from 0 to n − 1. Which line computes another number?",
        says("there is no rank", "Valid ranks are"),
    ),
    Diagnosis(
        "not-everybody",
        "A collective needs every rank of its group. Here some ranks "
        "wait in one others never call. Which condition keeps them out?",
        wait_in_collective,
    ),
    Diagnosis(
        "waits-in-vain",
        "A rank waits for one that has already returned. Which of the two "
        "makes a call too many, or one too few?",
        lambda p: isinstance(p.error, Deadlock) and not p.error.cycle,
    ),
    Diagnosis(
        "deadlock",
        "Follow the arrows. Each rank waits for one that waits as well: which "
        "call is missing, or comes too late?",
        found("Deadlock"),
    ),
    Diagnosis(
        "two-dtypes",
        "Two calls that meet have tensors of different dtypes. torch.empty() "
        "makes float32 unless it is told another one; empty_like() takes the dtype along.",
        two_dtypes,
    ),
    Diagnosis(
        "mismatch",
        "Two calls that meet have to agree. Does a rank skip one, "
        "so that its next call meets a different one?",
        found("Mismatch"),
    ),
    Diagnosis(
        "one-truth-value",
        "max(), min(), `if`, `and` and `in` ask for one truth value, and "
        "a tensor of several elements has one for each. torch.maximum, torch.minimum and "
        "torch.where work element by element.",
        says("Boolean value of Tensor"),
    ),
    Diagnosis(
        "index",
        "The list or tuple is shorter than the line takes it to be. (split(k) makes "
        "parts of k elements; chunk(k) makes k parts, or fewer; tensor_split(k) exactly k.)",
        says("list index out of range", "tuple index out of range"),
    ),
    Diagnosis(
        "raises",
        "That exception ends the rank, and so the case. Which value in the line is "
        "not what it takes it for? Print it there, with its shape and dtype.",
        found("RankFailed"),
    ),
]
# of which "only with …" may say more
VAGUE = {
    "deadlock",
    "index",
    "two-dtypes",
    "waits-in-vain",
    "receive-first",
    "mismatch",
    "raises",
    "not-everybody",
    "one-rank-alone",
}


def says_nothing(p: Play) -> bool:
    """Several ranks, what they need is with the others, and none of them calls anything; and not
    only memory is wrong, as it may be where there is nothing to send."""
    return p.done and p.case.world > 1 and not trace_of(p).events and not only(*MEMORY)(p)


TALK = [
    Diagnosis(
        "talks",
        "Everything it needs has been given to it: no rank has to ask another.",
        found("talks"),
    ),
    Diagnosis(
        "collective",
        "Build this answer from send and receive and their asynchronous forms alone.",
        found("collective"),
    ),
    Diagnosis(
        "nothing-sent",
        "No rank says a word. What another rank holds reaches this one in a "
        "message, or not at all.",
        says_nothing,
    ),
]


def held_in_others(p: Play) -> bool:
    """All values are right, and a list, tuple or set inside of what is returned is another one."""
    return only("returned")(p) and all(held_otherwise(f.got, f.want) for f in p.findings)


NUMBERS = [  # of what came to its end, and has all its numbers right
    Diagnosis("shape", "The numbers are right, and the shape is not.", right_but_for("shape")),
    Diagnosis("dtype", "The numbers are right, and the dtype is not.", right_but_for("dtype")),
    Diagnosis(
        "container",
        "The values are right, and what holds some of them is not: a list, a tuple and a "
        "set are not equal, whatever is in them.",
        held_in_others,
    ),
]
DONE = [  # of what came to its end, where no mistake of the exercise explains the values
    Diagnosis(
        "returns-nothing",
        "It returns None here. Which path through it has no result?",
        lambda p: any(f.kind == "type" and f.got is None for f in p.findings),
    ),
    Diagnosis(
        "wrong-type",
        "The stub promises another type than the one that comes back.",
        lambda p: found("type")(p) and p.kinds() <= {"type", *MEMORY},
    ),
    Diagnosis(
        "changes-argument",
        "A caller's tensor has changed that was to stay as it was: "
        "work on a copy. (A slice or a block of a tensor is a view of it.)",
        lambda p: found("argument changed")(p) and not found("left")(p),
    ),
    Diagnosis(
        "shares-memory",
        "What is returned is partly the caller's own tensor, or what an "
        "earlier call returned. Whoever writes into one changes the other: return new "
        "memory.",
        lambda p: only(*MEMORY)(p) and found(*MEMORY[:3])(p),
    ),
    Diagnosis(
        "replaced",
        "The numbers are right, in another tensor or in other memory. Whoever "
        "holds the old tensor (an optimizer, DDP's buckets, the caller) does not see them: "
        "write into it, in place.",
        lambda p: found("replaced")(p) and p.kinds() <= {*MEMORY, "left", "argument changed"},
    ),
    Diagnosis(
        "beside-messages",
        "It is right even where every message carries zeros, so the "
        "numbers came another way. Ranks share nothing but messages.",
        found("beside"),
    ),
]
BUDGET = [
    Diagnosis(
        "too-few-bytes",
        "Fewer bytes travel than the data have. Where did the rest come from?",
        found("too few bytes"),
    ),
    Diagnosis(
        "over-budget",
        "Go through the messages of one rank: how many are there, how long is "
        "the longest, and to whom do they go?",
        found("sends", "bytes", "peers", "rounds"),
    ),
]
NONE_FITS = Diagnosis(
    "values-differ",
    "None of the usual mistakes leaves these values. Which of "
    "them is the first that is wrong: is something missing in it, there twice, "
    "or another rank's?",
    lambda p: True,
)
BY_HAND = (
    "None of the usual mistakes gives this. Work the case above out by hand, and compare each step "
    "with what the function has there."
)
ONE_RANK = Diagnosis(
    "one-rank-alone",
    "One rank has the result, and the others do not. Who tells them?",
    lambda p: False,
)
GRAVE = ("Broken", "RankDied", "CourseError", "Hang", "Hazard")  # in this order; then the smallest


# ---- mistakes of value ---------------------------------------------------------------------------

UNTOUCHED = Mistake(
    "left-unwritten",
    "Something may have arrived, and on every rank the caller's "
    "tensors are what they were before: the result is in a tensor that nobody "
    "looks at. A name can be given a new tensor; the caller still holds the old "
    "one.",
    (untouched,),
)


def spoils(ex: Exercise, wrong: Right, play: Play) -> set[str]:
    """The facets that this mistake would spoil."""
    return ex.differing(play.comes_to(wrong), play.expected)


def predicts(ex: Exercise, wrong: Right, play: Play, facet: str) -> bool:
    """Whether this facet is what the mistake would make of it, and no other facet is right that
    the mistake would spoil."""
    return facet in spoils(ex, wrong, play) <= set(play.wrong) and (
        facet not in ex.differing(play.seen, play.comes_to(wrong))
    )


def _by_mistake(
    ex: Exercise, few: list[Play], fine: list[Play], where: str, copied: bool
) -> tuple[Diagnosis, Play] | None:
    """The mistake, or the two that nothing tells apart, that explain the first wrong facet.

    If it all goes wrong ``where`` a case has some feature, and only there, plays that are fine say
    nothing of a mistake that is made only there. ``copied``: the feature has contiguous() copy.
    """
    for facet in few[0].wrong:
        plays = sorted((p for p in few if facet in p.wrong), key=lambda p: p.case.size)
        known = [*ex.mistakes, UNTOUCHED] if facet in ("left", "grad") else [*ex.mistakes]
        for contradicting, said in [(fine, ""), ([], where)][: 2 if where else 1]:
            if said and not copied:  # a part that is left out is untouched, too
                known = [*ex.mistakes]
            ways = [
                (mistake, way)
                for mistake in known
                for way in mistake.wrong
                if all(predicts(ex, way, p, facet) for p in plays)
                and not any(spoils(ex, way, p) for p in contradicting)
            ]
            if ways:
                return _told(ex, facet, plays, known, ways, said)
        if ex.blank and all(_one_right(ex, facet, p) for p in plays):
            return replace(ONE_RANK, when=partial(_one_right, ex, facet)), few[0]
    return None


def _told(
    ex: Exercise,
    facet: str,
    plays: list[Play],
    known: list[Mistake],
    ways: list[tuple[Mistake, Right]],
    where: str,
) -> tuple[Diagnosis, Play]:
    """In words, and shown where nothing else would look like it, if there is such a play."""
    several = list(dict.fromkeys(mistake for mistake, _ in ways))[:2]
    hint = several[0].hint
    if several[1:]:
        hint = f"What was played fits two causes. {hint} Or: {several[1].hint}"
    mine = [way for mistake, way in ways if mistake in several]
    others = [way for mistake in known if mistake not in several for way in mistake.wrong]

    def differs_from(play: Play, *more: Right) -> bool:
        """Whether the mistake comes to something else there than right would, and all of these."""
        said = play.comes_to(mine[0])[:1]
        return all(facet in ex.differing(said, play.comes_to(way)[:1]) for way in (ex.right, *more))

    def clear(play: Play) -> bool:
        return differs_from(play, *others)

    shown = next(filter(clear, plays), None)
    return Diagnosis(
        several[0].id,
        f"{where} {hint}".strip(),
        lambda p: p.done and any(predicts(ex, way, p, facet) for way in mine),
        clear if shown else differs_from,
    ), shown or plays[0]


def _one_right(ex: Exercise, facet: str, play: Play) -> bool:
    """One of several ranks has got this facet right, by a change, and no other one has."""
    if not play.done or play.case.world < 2 or found("argument changed")(play):
        return False

    def alike(one: Seen, other: Seen) -> bool:
        return facet not in ex.differing([Outcome([one])], [Outcome([other])])

    pairs = zip(play.seen[0], play.expected[0], strict=True)
    right = [rank for rank, (got, want) in enumerate(pairs) if alike(got, want)]
    return len(right) == 1 and not alike(play.got(right[0]), Seen(None, play.before(right[0])))


# ---- the explanation -----------------------------------------------------------------------------


def diagnose(ex: Exercise, level: Level) -> tuple[Diagnosis, Play]:
    """Why this level fails, and the play that shows it. The id has the lesson's number in front:
    ``04.divides``."""
    play = shown = min(level.failed, key=lambda p: _gravity(ex, p))
    few = [
        shown,
        *(
            p
            for p in level.failed
            if p is not shown
            and _ends_as(p.error) == _ends_as(shown.error)
            and ex.features(p.case) <= ex.features(shown.case)
        ),
    ]
    names = _only_with(ex, level)
    talk = TALK if ex.blank else TALK[:-1]  # all but nothing-sent
    first = _first([*CUT_OFF, *ex.diagnoses, *ERRORS, *talk], few)
    if first is None and shown.done and shown.findings:
        # one number is easily another mistake's as well: of a formula the feature says more
        where = _only_where(names, level) if ex.in_ranks else ""
        first, play = _first(NUMBERS, few), shown
        copied = bool({*names} & {*SPREAD, "unordered"})
        first, play = (
            (first, shown)
            if first
            else _by_mistake(ex, few, level.fine, where, copied) or (_first(DONE, [shown]), shown)
        )
    elif first is None and shown.done:
        # a pattern shows where more than three ranks have something to say to one another
        many = [p for p in level.failed if p.case.world > 3 and p.case.length >= p.case.world]
        first = _first(PATTERNS, many)
        play = many[0] if first else shown
        first = first or _first(BUDGET, [shown])
    if names and (first is None or first.id in VAGUE):
        said = f"{_only_where(names, level)} {first.hint if first else ''}".strip()
        id = f"only-{'-or-'.join(names)}".replace(" ", "-")
        first, play = Diagnosis(id, said, lambda p: bool({*names} & ex.features(p.case))), shown
    if first is None:
        where = which_differ(shown)
        hint = f"{where} {NONE_FITS.hint}".strip() if ex.in_ranks else BY_HAND
        first = replace(NONE_FITS, hint=hint, when=lambda p: which_differ(p) == where)
    return replace(first, id=f"{ex.number.split('.')[0]}.{first.id}"), play


def _ends_as(error: CourseError | None) -> tuple[type, str]:
    """What ended a play; of a hazard its kind, as one answer may run into several."""
    return type(error), getattr(error, "kind", "")


def _gravity(ex: Exercise, play: Play) -> tuple:
    """Grave errors first, and budgets last; then small worlds and lengths, then few features."""
    grave = next((i for i, kind in enumerate(GRAVE) if kind in play.kinds()), len(GRAVE))
    return grave, not play.findings, play.case.size, len(ex.features(play.case))


def _first(diagnoses: Sequence[Diagnosis], plays: list[Play]) -> Diagnosis | None:
    """The first that is true of all these plays."""
    return next((d for d in diagnoses if plays and all(map(d.when, plays))), None)


def _only_with(ex: Exercise, level: Level) -> Sequence[str]:
    """One feature or two, of which all that fails has one and nothing that passes has any."""
    fine = set[str]().union(*(ex.features(p.case) for p in level.fine))
    failed = [ex.features(p.case) - fine for p in level.failed]
    most = [name for name, _ in Counter(n for f in failed for n in sorted(f)).most_common()]
    several = [*combinations(most, 1), *combinations(most, 2)] if level.fine else []
    return next((names for names in several if all({*names} & f for f in failed)), ())


def _only_where(names: Sequence[str], level: Level) -> str:
    """The features in a sentence, and a question about each; nothing where there are none."""
    clauses, questions = [clause(name)[0] for name in names], [clause(name)[1] for name in names]
    said = f"Among the {level.name} cases it goes wrong only where {', or where '.join(clauses)}"
    asked = dict.fromkeys(filter(None, questions))  # two features may have one question
    return " ".join([f"{said}.", *asked]) if names else ""
