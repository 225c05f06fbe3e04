"""From evidence to a diagnosis: words to declare one with, and those that every lesson shares.

A lesson's own diagnoses go first, in its order; then the general ones; then "values-differ".
Evidence is what happened in all plays of a level: values, errors, the trace. Never the source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.checks.cases import SPREAD
from course_lib.checks.compare import same
from course_lib.checks.exercise import Diagnosis, Evidence, Exercise, Play
from course_lib.errors import Hazard, RankFailed, Standstill

When = Callable[[Evidence], bool]
OfPlay = Callable[[Play], bool]


def every(test: OfPlay) -> When:
    """All plays that fail are like this."""
    return lambda e: bool(e.failed) and all(test(p) for p in e.failed)


def some(test: OfPlay) -> When:
    """At least one of the plays that fail is like this."""
    return lambda e: any(test(p) for p in e.failed)


def only_where(test: OfPlay) -> When:
    """It fails in these cases, and nothing else fails: the others are there, and right."""
    return lambda e: every(test)(e) and any(not test(p) for p in e.passed)


def both(*tests: When) -> When:
    return lambda e: all(test(e) for test in tests)


def any_of(*tests: When) -> When:
    return lambda e: any(test(e) for test in tests)


def returns(prediction: Callable[[Play, int], Any], where: OfPlay = lambda p: True) -> When:
    """In each such play every rank returns what this mistake would make it return.

    At least one prediction has to differ from what is right, or it would explain nothing.
    """

    def when(e: Evidence) -> bool:
        plays = [p for p in e.plays if where(p)]
        return any(p in plays for p in e.failed) and all(
            p.done and all(same(p.got(r).returned, prediction(p, r), 1e-9)
                           for r in range(p.case.world))
            for p in plays)  # fmt: skip

    return when


def found(*kinds: str) -> OfPlay:
    """The play has a finding of one of these kinds."""
    return lambda p: bool(p.kinds() & set(kinds))


def alone(play: Play) -> bool:
    """A world of one rank."""
    return play.case.world == 1


def raised(*names: str) -> OfPlay:
    """A rank raised an exception of one of these classes."""
    return lambda p: isinstance(p.error, RankFailed) and p.error.kind in names


def hazard(*kinds: str) -> OfPlay:
    return lambda p: isinstance(p.error, Hazard) and p.error.kind in kinds


def all_wait_in(call: str) -> OfPlay:
    """Every rank of the world waits, in this call (``send``, ``recv``)."""
    return lambda p: isinstance(p.error, Standstill) and bool(p.error.waits) and all(
        call in w.call for w in p.error.waits) and len(p.error.waits) == p.case.world  # fmt: skip


only_spread: When = both(  # where elements do not lie side by side, and values are wrong
    only_where(lambda p: p.case.layout in SPREAD), every(lambda p: "memory" not in p.kinds())
)
IN_A_COPY = (  # a hint that more than one exercise gives
    "It goes wrong where elements do not lie side by side, or in another order than on another "
    "rank: is something done to a copy, or do two ranks go through their elements in different "
    "orders?"
)
REMEMBERS = Diagnosis(
    "remembers", "One call alone goes well, several in a row do not: what does the function keep "
    "from one call, or take from the next one?", only_where(lambda p: p.case.calls > 1),
)  # fmt: skip
GENERAL = [
    Diagnosis("signature", "Keep the function's name and its arguments as the stub has them.",
              some(raised("BadSignature"))),
    Diagnosis("breaks-the-check", "Does the answer change torch or the library itself? If it does "
              "not, this is our mistake, and we would like to know.", some(found("broken"))),
    Diagnosis("import", "The file has to run on its own, before anything is called.",
              some(raised("AtImport"))),
    Diagnosis("starts-process", "A rank is a process already: it starts no other one, and ends by "
              "returning.", some(lambda p: raised("StartedProcess")(p) or (
                  raised("RuntimeError")(p) and "start or end processes" in str(p.error)))),
    Diagnosis("exits", "Leave the function by return: a rank that ends itself leaves the others "
              "waiting.", some(lambda p: raised("CalledExit")(p) or found("died")(p))),
    Diagnosis("cannot-travel", "Whatever the function uses from outside has to fit in a message: "
              "make it inside.", every(found("refused"))),
    Diagnosis("hangs", "Somewhere it is still at work or waiting when its time is up, and no "
              "message is on its way: which loop, pause or call does not end?",
              some(found("hang"))),
    Diagnosis("talks", "What it needs it has been given: it asks no other rank, and works where "
              "there is none.", some(found("talks"))),
    Diagnosis("collective", "This answer is to be built from send and receive: these two and "
              "their asynchronous forms are all that it needs.", some(found("collective"))),
    Diagnosis("read-before-wait", "Until wait() has returned, what irecv writes into is nobody's "
              "to read.", some(hazard("read before wait"))),
    Diagnosis("never-waited", "Each isend and irecv returns a Work; keep it and wait for it "
              "before the function returns.", some(hazard("never waited for"))),
    Diagnosis("written-before-wait", "Until wait() has returned, what isend sends or irecv fills "
              "is nobody's to write.", some(hazard("written before wait"))),
    Diagnosis("deadlock", "Follow the arrows: each rank waits for one that waits as well, or that "
              "has returned. Which call is missing, or comes too late?",
              every(found("deadlock"))),
    Diagnosis("mismatch", "A send and the recv that takes it name each other, and agree in "
              "size and dtype.",
              every(found("mismatch"))),
    Diagnosis("raises", "The error comes out of the answer's own line, above.",
              every(found("raised"))),
    Diagnosis("returns-nothing", "The function ends without returning what it has made.",
              every(lambda p: any(f.kind == "type" and f.got is None for f in p.findings))),
    Diagnosis("wrong-type", "What comes back is of another type than the stub promises.",
              every(found("type"))),
    Diagnosis("changes-argument", "The caller's tensor is to stay as it was: work on a copy.",
              every(lambda p: p.kinds() == {"argument changed"})),
    Diagnosis("shares-memory", "Whoever writes into one of them changes the other, too: return "
              "memory of its own.", every(lambda p: p.kinds() == {"memory"} and all(
                  "share" in f.text for f in p.findings))),
    Diagnosis("not-in-place", "The caller keeps the tensors that it handed over: leave these "
              "where they are, in the list and in memory, and write into them.",
              every(lambda p: any("replaced" in f.text for f in p.findings))),
    Diagnosis("stray-write", "A strided tensor has neighbours in memory that are not its own.",
              every(found("stray"))),
    Diagnosis("beside-messages", "It is right even where every message carries zeros: the numbers "
              "came another way. Ranks are to share nothing but messages.", some(found("beside"))),
    Diagnosis("no-message", "Ranks are to share nothing but messages: what one rank knows "
              "reaches another one in such a one.", every(lambda p: p.kinds() == {"no message"})),
    Diagnosis("too-few-bytes", "Fewer bytes travel than the data need; where did the rest come "
              "from?", every(lambda p: p.kinds() == {"too few bytes"})),
    Diagnosis("over-budget", "Count what one rank sends, and to whom: the case says where that is "
              "more than allowed.", every(lambda p: p.kinds() <= {"sends", "bytes", "peers"})),
    REMEMBERS,
]  # fmt: skip

NONE_FITS = Diagnosis("values-differ", "Play the case above by hand, rank by rank: which line "
                      "is the first that does not do what it was meant to?",
                      lambda e: True)  # fmt: skip


def diagnose(exercise: Exercise, evidence: Evidence) -> Diagnosis:
    """The first that fits, its id with the lesson's number in front: ``04.divides``."""
    lesson = exercise.number.split(".")[0]
    cut_off = some(found("hang", "died", "broken", "refused"))(evidence)  # nothing to compare
    own = [] if cut_off else exercise.diagnoses
    fitting = (d for d in [*own, *GENERAL, NONE_FITS] if d.when(evidence))
    first = next(fitting)
    return Diagnosis(f"{lesson}.{first.id}", first.hint, first.when)
