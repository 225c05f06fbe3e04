"""Diagnoses that show in a play itself, whatever the exercise: how it ended, who spoke, what is
left.

A play is asked by small predicates (``found``, ``only``, ``says``, …), which exercises use as well.
Each table is in the order in which its diagnoses are tried: see Note [The order of the tables] in
diagnose.py, which also says in which order the tables are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from course_check import rules
from course_check.compare import is_held_otherwise, same_but_for
from course_check.exercise import Diagnosis, Mistake, Play, untouched
from course_lib.errors import Blocked, Deadlock, Mismatch

OfPlay = Callable[[Play], bool]
Table = dict[str, OfPlay]  # by the id of a diagnosis, what is true of the plays that have it
MEMORY = ("shared", "argument's memory", "earlier memory", "replaced")  # findings, see judge.NOTES


# ---- what a play tells by itself -----------------------------------------------------------------


def found(*kinds: str) -> OfPlay:
    """The play has a finding of one of these kinds, or ended in such an error: a class's name, or
    the kind of a hazard. A plain CourseError says that something cannot travel."""
    return lambda p: bool(p.kinds() & set(kinds))


def only(*kinds: str) -> OfPlay:
    """The play came to its end, and has findings of these kinds and no others."""
    return lambda p: p.done and bool(p.kinds()) and p.kinds() <= set(kinds)


def gravest(kind: str) -> OfPlay:
    """The play has a finding of this kind; where it is one of the budget, all else is right."""
    return lambda p: kind in {f.kind for f in p.findings or p.over_budget}


def all_wait_in(call: str) -> OfPlay:
    """Every rank of the world waits, in this call (``send``, ``recv``)."""
    return lambda p: (
        isinstance(p.error, Blocked)
        and len(p.error.waits) == p.case.world
        and all(call in w.call for w in p.error.waits)
    )


def none_meet(p: Play) -> bool:
    """All ranks wait in messages, and sends as well as receives have begun and have no end."""
    waiting = all_wait_in("send")(p) or all_wait_in("recv")(p)
    return waiting and {e.op for e in p.trace.events if e.completed is None} == {"send", "recv"}


def returned(like: Callable[[Any, Any], bool]) -> OfPlay:
    """Only what is returned is wrong, and ``like(got, want)`` is true of each such finding."""
    return lambda p: only("returned")(p) and all(like(f.got, f.want) for f in p.findings)


def two_dtypes(p: Play) -> bool:
    """Tensors of different dtypes meet in one line's call, or in a send and its recv."""
    if not isinstance(p.error, Mismatch) or p.error.what != "dtype":
        return False
    return len(set(p.error.lines)) == 1 or "recv" in str(p.error)


def wrong_in_backward(p: Play) -> bool:
    """The function is driven forward and backward, and only its gradients are wrong."""
    outputs = ("output" in args for seen in p.seen[:1] for args, *_ in (s.args for s in seen))
    return p.wrong == ["grad"] and all(outputs)


def wait_in_collective(p: Play) -> bool:
    """Some rank waits in a collective."""
    messages = "send", "recv", "isend", "irecv"
    waits = p.error.waits if isinstance(p.error, Blocked) else []
    return any(not w.call.startswith(messages) for w in waits)


def says(*words: str) -> OfPlay:
    """The error's first line has one of these in it."""
    return lambda p: any(w in str(p.error).partition("\n")[0] for w in words)


def first_true(plays: list[Play], *tables: Table | Sequence[Diagnosis]) -> Diagnosis | None:
    """The first in these tables that is true of all these plays."""
    for table in tables if plays else ():
        if isinstance(table, dict):
            table = [make_diagnosis(id, when) for id, when in table.items()]
        for diagnosis in table:
            if all(map(diagnosis.when, plays)):
                return diagnosis
    return None


def make_diagnosis(id: str, when: OfPlay) -> Diagnosis:
    """One of the usual diagnoses, with its hint."""
    return Diagnosis(id, HINTS[id], when)


HINTS = {  # by id
    "signature": "Keep the function's name and its arguments as the stub has them.",
    "breaks-the-check": "Does the answer change torch or course_lib itself? If it does not, the "
    "mistake is ours: please report it.",
    "import": "The file has to run by itself, before anything in it is called.",
    "starts-process": "A rank is a process already. It starts no other one, and ends by returning.",
    "exits": "Leave the function by return. A rank that ends itself leaves the others waiting.",
    "cannot-travel": "What the function uses from outside has to be sent to each rank, and "
    "something in it cannot: make that inside the function.",
    "hangs": "It was still busy when its time was up, and no message was on its way. Which loop, "
    "pause or call does not end?",
    "one-buffer": "Several results go into one tensor: only what comes last stays in it. How many "
    "tensors are needed? ([box] * n is one tensor in n places.)",
    "strided": "The call wants tensors whose elements lie side by side, and here they do not. "
    "contiguous() gives such a copy; empty_like() and clone() keep the strides, unless "
    "memory_format=torch.contiguous_format says otherwise.",
    "read-before-wait": "What irecv fills, or a collective with async_op=True, may be read only "
    "after wait() has returned.",
    "never-waited": "Each isend, each irecv, and each collective with async_op=True returns a "
    "Work. Keep it, and wait for it before the function returns.",
    "written-before-wait": "What isend sends, and what irecv or a collective with async_op=True "
    "fills, may be written only after wait() has returned.",
    "send-first": "Every rank sends first, and a send may wait for its recv: nobody is left to "
    "receive. Who could receive first, or which call starts a message without waiting for it?",
    "receive-first": "Every rank waits for a message that nobody has sent yet. Who could send "
    "first?",
    "not-met": "Sends and receives are both under way, and no two of them meet. To whom does each "
    "rank send, and whose message does it wait for?",
    "talks-to-itself": "No message goes from a rank to itself. Which line names it as its own "
    "peer?",
    "no-such-rank": "Ranks are counted from 0 to n − 1. Which line computes another number?",
    "not-everybody": "A collective needs every rank of its group. Here some ranks wait in a call "
    "that the others never make. Which condition keeps the others out?",
    "waits-in-vain": "A rank waits for one that has already returned. Which of the two makes a "
    "call too many, or one too few?",
    "deadlock": "Follow the arrows. Each rank waits for one that waits as well, or has returned: "
    "which call is missing, too late, or one too many?",
    "two-dtypes": "Two calls that meet have tensors of different dtypes. torch.empty() makes "
    "float32 unless it is told another one; empty_like() takes the dtype along.",
    "mismatch": "Two calls that meet have to agree. Does a rank skip one, so that its next call "
    "meets a different one?",
    "one-truth-value": "max(), min(), `if`, `and` and `in` ask for one truth value, and a tensor "
    "of several elements has one for each. torch.maximum, torch.minimum and torch.where work "
    "element by element.",
    "index": "The list or tuple is shorter than the line takes it to be. (split(k) makes parts of "
    "k elements; chunk(k) makes k parts, or fewer; tensor_split(k) exactly k.)",
    "writes-gradient": "A backward that writes into .grad loses what was there, and hands "
    "nothing to torch.autograd.grad, or to the layer before. Return the gradient.",
    "none-value": "Something is None there. send, recv and every collective fill the tensor that "
    "they are given, and return None or a Work. A .grad is None until backward reaches it.",
    "raises": "That exception ends the rank, and so the case. Which value in that line is not "
    "what the line expects? Print it there, with its shape and dtype.",
    "talks": "Everything it needs has been given to it: no rank has to ask another.",
    "collective": "Build this answer from send and receive and their asynchronous forms alone.",
    "nothing-sent": "No rank says a word. What another rank holds reaches this one in a message, "
    "or not at all.",
    "used-twice": "Called once, it has the right gradient; called twice in one graph, it has not. "
    "What does it keep outside ctx, or does it write into the gradient that comes in?",
    "shape": "The numbers are right, and the shape is not.",
    "dtype": "The numbers are right, and the dtype is not.",
    "container": "The values are right, and what holds some of them is not: a list, a tuple and a "
    "set are not equal, whatever is in them.",
    "whole-tensors": "Every message is as long as the tensor. What if each one carried only a part "
    "of it?",
    "everyone-to-everyone": "Everyone sends to everyone. On a ring each rank sends to one "
    "neighbour and hears from the other.",
    "through-one": "One rank hears from everybody and tells everybody: its link carries everything "
    "while the others idle.",
    "returns-nothing": "It returns None here. Which path through it has no result?",
    "wrong-type": "The stub promises another type than the one that comes back.",
    "changes-argument": "Something of the caller's has changed and should not have: work on a "
    "copy. (A slice or a block of a tensor is a view of it. Put a hook on a view, not on it.)",
    "shares-memory": "What is returned is partly the caller's own tensor, or what an earlier call "
    "returned. Whoever writes into one changes the other: return new memory.",
    "written-between": "Memory between or around the tensor's elements has changed: another "
    "tensor may live there.",
    "replaced": "The numbers are right, in another tensor or in other memory. Whoever holds the "
    "old tensor (an optimizer, DDP's buckets, the caller) does not see them: write into it, in "
    "place.",
    "beside-messages": "It is right even where every message carries zeros, so the numbers came "
    "another way. Ranks share nothing but messages.",
    "too-few-bytes": "Fewer bytes travel than the data have. Where did the rest come from?",
    "over-budget": "Go through the messages of one rank: how many are there, how long is the "
    "longest, and to whom do they go?",
    "values-differ": "These values fit no mistake that this check knows. Which is the first wrong "
    "one? Is something missing in it, is something in it twice, or is it another rank's?",
    "one-rank-alone": "One rank has the result, and the others do not. Who tells them?",
    "left-unwritten": "Whatever has arrived, on every rank the caller's tensors are what they were "
    "before: the result is in a tensor that nobody looks at. A name can be given a new "
    "tensor; the caller still holds the old one.",
}
CUT_OFF: Table = {  # of what ended all play, or never began
    "signature": found("BadSignature"),
    "breaks-the-check": found("Broken"),
    "import": found("AtImport"),
    "starts-process": says("start or end processes"),
    "exits": found("CalledExit", "RankDied"),
    "cannot-travel": found("CourseError"),
    "hangs": found("Hang"),
}
ERRORS: Table = {
    "one-buffer": lambda p: (
        found("shared")(p) or (found("written before wait")(p) and says("fills the same tensor")(p))
    ),
    "strided": says("has to be contiguous", "must be contiguous"),
    "read-before-wait": found("read before wait"),
    "never-waited": found("never waited for"),
    "written-before-wait": found("written before wait"),
    "not-met": none_meet,
    "send-first": all_wait_in("send"),
    "receive-first": all_wait_in("recv"),
    "talks-to-itself": says("same as the rank of the current process", "from itself"),
    "no-such-rank": says("there is no rank", "Valid ranks are"),
    "not-everybody": wait_in_collective,
    "waits-in-vain": lambda p: isinstance(p.error, Deadlock) and not p.error.cycle,
    "deadlock": found("Deadlock"),
    "two-dtypes": two_dtypes,
    "mismatch": found("Mismatch"),
    "one-truth-value": says("Boolean value of Tensor"),
    "index": says("list index out of range", "tuple index out of range"),
    "changes-argument": says("the caller's tensors has"),
    "writes-gradient": says("written into .grad by"),
    "none-value": says("'NoneType'"),
    "raises": found("RankFailed"),
}
# Of these "It goes wrong only where …" may say more.
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
    return p.done and p.case.world > 1 and not p.trace.events and not only(*MEMORY)(p)


TALK: Table = {"talks": found("talks"), "collective": found("collective")}
NOTHING_SENT: Table = {"nothing-sent": says_nothing}
NUMBERS: Table = {  # of what came to its end, and has all its numbers right
    "used-twice": lambda p: {f.kind for f in p.findings} == {"used twice"},
    "shape": returned(partial(same_but_for, "shape")),
    "dtype": returned(partial(same_but_for, "dtype")),
    "container": returned(is_held_otherwise),
}
PATTERNS: Table = {  # told apart where there are more than three ranks
    "whole-tensors": lambda play: found("bytes")(play) and rules.whole_tensors(play),
    "everyone-to-everyone": rules.to_everyone,
    "through-one": lambda play: play.case.world > 3 and rules.through_one(play),
}
DONE: Table = {  # of what came to its end, where no mistake of the exercise explains the values
    "returns-nothing": lambda p: any(f.kind == "type" and f.got is None for f in p.findings),
    "wrong-type": lambda p: found("type")(p) and p.kinds() <= {"type", *MEMORY},
    "changes-argument": lambda p: found("argument changed")(p) and not found("left")(p),
    "shares-memory": lambda p: only(*MEMORY)(p) and found(*MEMORY[:3])(p),
    "written-between": only("between"),
    "replaced": lambda p: (
        found("replaced")(p) and p.kinds() <= {*MEMORY, "left", "argument changed"}
    ),
    "beside-messages": found("beside"),
}
BUDGET: Table = {
    "too-few-bytes": found("too few bytes"),
    "over-budget": found("sends", "bytes", "peers", "rounds"),
}
BY_HAND = (
    "This fits no mistake that this check knows. Work the case above out by hand, and compare each "
    "step with what the function has there."
)
UNTOUCHED = Mistake("left-unwritten", HINTS["left-unwritten"], (untouched,))
