"""RankFailed, RankDied: which of several failures was the root cause.

A RankOutcome says how one rank's part ended: whether it returned, raised, left or died, when, and
where. Reading only that, ``root_cause`` decides which failure was the first and which were
consequences.
"""

from __future__ import annotations

import math
import os
import pickle
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

from course_lib.diagnosis.lines import call_text, ranks_text
from course_lib.errors import CourseError, Deadlock, RankDied, RankFailed
from course_lib.pickling import LARGEST, TooLarge, pack, why
from course_lib.trace import Event, Line
from course_lib.user_code import line_at, stack_lines, user_lines

# A failure is a rank's own, or the rank has waited in vain, or the other end of its connection has
# gone. These are the words of gloo, of torch's store and of NCCL's watchdog for the last two. One
# text can have both: a monitored barrier and an aborted communicator quote what they met, and a
# connection that "timed out" is one that was lost.
_TIMED_OUT = re.compile(
    r"timed out (waiting|after .* waiting for clients|in (monitoredBarrier|blocking wait))"
    r"|operation timed? ?out|application timeout caused|failed to pass monitoredBarrier"
    r"|(wait|barrier|connect|socket|read|write|NCCL) timeout|timeout (waiting for key|watchdog)"
    r"|client socket has timed out|before timing out",
    re.I,
)
_LOST_PEER = re.compile(
    r"connection (was likely )?(closed|reset|refused|timed out)|broken pipe|closed the connection"
    r"|connectFullMesh failed|ncclRemoteError"
    r"|communicator was aborted(?!.*(timeout|timed out))",
    re.I | re.S,
)
# How the names of exceptions begin that say such words of a group; in any other exception, the
# words are the reader's own.
_OF_GROUPS = ("RuntimeError", "Dist", "Rendezvous", "CheckpointException")
_AT_ONCE = 1.0  # second: a timeout closes connections, and the other end may raise first


@dataclass
class LateRank:
    """A rank that had not made a call when others gave up waiting for it."""

    rank: int
    did: str = ""  # at that time: "stood at:", "waited in recv(src=1) at:", "had returned."
    lines: Sequence[Line] = ()  # where, outermost first
    made_after: float | None = None  # how many seconds later it made the call; None: never


@dataclass
class RankOutcome:
    """How one rank's part ended. ``state`` is returned, raised, left or died."""

    rank: int
    state: str
    at: float  # seconds, on a clock that all ranks share
    kind: str = ""  # class name of what it returned or raised
    message: str = ""
    lines: list[Line] = field(default_factory=list)  # the reader's lines, outermost first
    code: int = 0  # exit code, or minus the signal
    exception: BaseException | None = None
    last_call: Event | None = None  # of one that died: the call it stood in, or had made last
    last_words: str = ""  # of one that C++ ended
    late: Sequence[LateRank] = ()  # of one whose wait timed out: for whom it had waited
    # What only a rank with a process of its own sends:
    began: float = 0.0  # when its function did
    result: bytes = b""  # what it returned, pickled
    imports: Sequence[str] = ()  # modules that others will need, too

    @classmethod
    def of_exception(cls, rank: int, at: float, error: BaseException) -> Self:
        """The outcome of a rank whose function ended in an exception, as ``sys.exit()`` does."""
        # one that was raised in another process has brought its lines along
        lines = getattr(error, "__lines__", None) or stack_lines(error.__traceback__)
        if isinstance(error, SystemExit):
            code, said = error.code, ""
            if not isinstance(code, int):  # sys.exit("why") prints that, and stands for 1
                code, said = int(code is not None), str(code or "")
            return cls(rank, "left", at, lines=lines, code=code, last_words=said)
        late = getattr(error, "late", ())  # a simulation knows at once
        kind = type(error).__name__
        return cls(rank, "raised", at, kind, str(error), lines, exception=error, late=late)

    @classmethod
    def of_result(
        cls, rank: int, at: float, result: object, function: object, most: int = LARGEST
    ) -> Self:
        """The outcome of a rank whose function returned; a failure if the result cannot travel."""
        kind, code = type(result).__name__, getattr(function, "__code__", None)
        line = code and line_at(code.co_filename, code.co_firstlineno, code.co_name)
        try:
            return cls(rank, "returned", at, kind, result=pack(result, most))
        except TooLarge as error:
            said = f"returned {error}: return a summary of it (a shape, a norm, a slice)"
        except Exception as error:
            said = f"returned a {kind}, which cannot travel ({why(error)}): return plain data"
        return cls(rank, "raised", at, message=said, lines=[line] if line else [])

    def value(self) -> object:
        """What the function returned."""
        try:
            return pickle.loads(self.result) if self.state == "returned" else None
        except Exception as error:
            message = f"rank {self.rank} returned a {self.kind}, which cannot be unpickled here"
            message = f"{message} ({why(error)}): return plain data"
            raise RankFailed(message, rank=self.rank, kind=self.kind) from error

    @property
    def ended_well(self) -> bool:
        """Whether it returned, or called ``sys.exit()`` as a script does at its end."""
        return self.state == "returned" or (self.state == "left" and self.code == 0)

    @property
    def lost_its_peer(self) -> bool:
        return self._says(_LOST_PEER)

    @property
    def timed_out(self) -> bool:
        return self._says(_TIMED_OUT) and not self._says(_LOST_PEER)

    @property
    def is_victim(self) -> bool:
        """Whether what it says is that another rank did not do its part."""
        return self._says(_LOST_PEER) or self._says(_TIMED_OUT)

    def _says(self, words: re.Pattern[str]) -> bool:
        of_group = self.state == "raised" and self.kind.startswith(_OF_GROUPS)
        return of_group and bool(words.search(self.message))


# ---- ranks that fail -----------------------------------------------------------------------------


def root_cause(failures: Sequence[RankOutcome], more: Sequence[str] = ()) -> CourseError:
    """The error for these failures, of which there is at least one.

    A failure of a rank's own comes before a timeout, and a timeout before the lost connections that
    it has caused. ``more`` are lines with which the error ends.
    """
    failed = sorted(failures, key=lambda s: (s.is_victim, s.lost_its_peer, s.at, s.rank))
    lost = min((s.at for s in failed if s.lost_its_peer), default=math.inf)
    if failed[0].timed_out and lost < failed[0].at - _AT_ONCE:  # that was before any timeout
        failed.sort(key=lambda s: (s.at, s.rank))
    first = failed[0]
    same = [s for s in failed if _are_alike(s, first)]
    first = min(same, key=lambda s: (not s.late, s.rank))
    others = [s for s in failed if s not in same]
    explain = _explain_raised if first.state == "raised" else _explain_death
    error = explain(first, same, others)
    error.args = ("\n".join([str(error), *more]),)
    return error


def blame_who_left(error: CourseError, outcomes: Iterable[RankOutcome]) -> CourseError:
    """The same error; or the RankDied of a rank that called ``sys.exit()`` while others still
    wait for it in vain.
    """
    waits = error.waits if isinstance(error, Deadlock) else ()
    awaited = {rank for wait in waits for rank in wait.on}
    left = [o for o in outcomes if o.state == "left" and o.rank in awaited]
    if not left:
        return error
    victims = [wait for wait in waits if not {o.rank for o in left}.isdisjoint(wait.on)]
    text = [f"  rank {w.rank} waits for it in {w.call}   {w.line or ''}" for w in victims]
    return _explain_death(min(left, key=lambda o: o.rank), [], [], text)


_NUMBER = re.compile(r"\d+")  # a rank's own, an address, a value


def _are_alike(a: RankOutcome, b: RankOutcome) -> bool:
    """Whether one sentence can tell of both failures; where a rank died makes no difference."""
    same = (a.state, a.kind, a.code) == (b.state, b.kind, b.code)
    if a.timed_out and b.timed_out:  # whether gloo was sending or receiving says nothing
        return same and a.lines == b.lines
    said = _NUMBER.sub("", a.message) == _NUMBER.sub("", b.message)
    return same and (a.state == "died" or (a.lines == b.lines and said))


def _say_consequences(first: RankOutcome, others: Sequence[RankOutcome]) -> Iterator[str]:
    """What became of the others. A rank that lost a peer fell because of that, and so did one that
    waited in vain for a rank that failed by itself. Any other error may be another story.
    """
    fell = {s.rank for s in others if s.lost_its_peer or (s.timed_out and not first.is_victim)}
    for is_victim, what in ((True, "fell over because of it."), (False, "failed, too.")):
        if those := [s.rank for s in others if (s.rank in fell) is is_victim]:
            yield f"{ranks_text(those)} {what}"


_NO_DRIVER = "This needs a GPU itself, and this machine shows none: leave it out here."
# What torch says, and what helps.
_CURES = {
    "is not part of group": "src and dst are global ranks: where you mean a rank's number within "
    "the group, say group_src= or group_dst=.",
    "got mixed torch.Tensor and DTensor": "After parallelize_module: call the module, which "
    "converts its input, or say how x lies: DTensor.from_local(x, mesh, [Replicate()]). After "
    "fully_shard: call model(x), not model.forward(x), which gathers no parameters.",
    "Could not run 'c10d::": "This call takes no such tensor: give it a plain one, as x.to_dense() "
    "or x.dequantize() make.",
    "CUDA driver version is insufficient": _NO_DRIVER,
    "Found no NVIDIA driver": _NO_DRIVER,
    "connectFullMesh failed": "After a restart, gloo may have met addresses of the ranks before: "
    "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 where you call torchrun.",
}
# From here on torch lists its backends, or says how to debug kernels.
_REST = re.compile(r"\. This could be because the operator doesn't exist|\nSearch for `cuda")
_INNER = re.compile(r"(?:Original )?Traceback \(most recent call last\).*\n((?:[ \t].*\n)+)")
_INNER_FRAME = re.compile(r'^ +File "(.+)", line (\d+), in (.+)$', re.M)


def _clean_message(outcome: RankOutcome) -> str:
    """What a rank's exception says, without what would hide that."""
    message = _REST.split(outcome.message)[0]
    return _INNER.sub(_keep_own_lines, message).strip()


def _keep_own_lines(traceback: re.Match[str]) -> str:
    """The reader's lines alone of a traceback, from another process or rank, within a message."""
    frames = [(f, int(n), name) for f, n, name in _INNER_FRAME.findall(traceback[1])]
    return "".join(f"  {line}\n" for line in user_lines(frames))


def _explain_raised(
    first: RankOutcome, same: Sequence[RankOutcome], others: Sequence[RankOutcome]
) -> RankFailed:
    """The error for ranks that raised: what was said, at which lines, what may help, who fell."""
    words = f"raised {first.kind}" if first.kind else ""  # without one, the message says it all
    if len({_clean_message(s) for s in same}) > 1:  # one rank's text speaks for itself alone
        words += f", rank {first.rank} in these words"
    what = ": ".join(filter(None, [words, _clean_message(first)]))
    who = ranks_text([s.rank for s in same])
    lines = [f"{who} {what}", *(f"  {line}" for line in first.lines)]
    lines += [cure for said, cure in _CURES.items() if said in first.message]
    lines += _say_who_was_late(first.late)
    lines += _say_consequences(first, others)
    fell = tuple(s.rank for s in others)
    error = RankFailed("\n".join(lines), rank=first.rank, kind=first.kind, consequences=fell)
    error.__cause__ = first.exception
    error.__suppress_context__ = True
    return error


_PATH = 3  # lines of the way to where a rank stood
_MOST_LATE = 8  # different places


def _say_who_was_late(late: Iterable[LateRank]) -> Iterator[str]:
    """Which ranks had not made the call that others gave up, and where they were. One sentence
    tells of all that were at the same place.
    """
    alike: dict[tuple, list[LateRank]] = {}
    for one in late:  # those who came in the end may have come one after the other
        alike.setdefault((*one.lines, one.did, one.made_after is None), []).append(one)
    for ranks in list(alike.values())[:_MOST_LATE]:
        one, who = ranks[0], ranks_text([late.rank for late in ranks])
        they = "it" if len(ranks) == 1 else "they"
        said = f"{who} had not made this call yet"
        if one.made_after is not None:
            said = f"{who} made this call {one.made_after:.1f} s too late"
            they = f"until then {they}"
        yield f"{said}; {they} {one.did}" if one.did else f"{said}."
        yield from (f"  {line}" for line in one.lines[-_PATH:])
    if alike:
        yield "If that is right, let others wait longer: give the group, or the call, a timeout=."


def _explain_death(
    first: RankOutcome, _: object, others: Sequence[RankOutcome], waits: Sequence[str] = ()
) -> RankDied:
    """The error for a rank that died or left; ``waits`` says who waits for it."""
    manner, advice = _say_how_it_ended(first)
    lines = [f"rank {first.rank} {manner}"]
    event = first.last_call
    if first.lines:
        lines.append(f"  it was at {first.lines[-1]}")
    elif event is not None:
        lines.append(f"  the last thing it did: {call_text(event)}   {event.line or ''}")
    lines += [f"  it said: {' '.join(first.last_words.split())}"] if first.last_words else []
    lines += [*waits, *_say_consequences(first, others), advice]
    fell = tuple(s.rank for s in others)
    return RankDied("\n".join(lines), rank=first.rank, exit_code=first.code, consequences=fell)


_UNDER_DETAIL = (
    "TORCH_DISTRIBUTED_DEBUG=DETAIL is set, under which torch 2.15 crashes where it wraps a model "
    "in DistributedDataParallel: set it to INFO."
)
_TOO_EARLY = "A rank must not end before the others have what they need from it."
_ADVICE = {
    "SIGKILL": "SIGKILL comes from outside: most often the system was out of memory.",
    "SIGSEGV": "A segmentation fault comes from compiled code: look at the line above.",
    "SIGABRT": "An abort comes from compiled code that found its state broken.",
    "SIGTERM": "Somebody asked it to end.",
}


def _say_how_it_ended(outcome: RankOutcome) -> tuple[str, str]:
    """How a rank left or died, and what may help."""
    code, left = outcome.code, outcome.state == "left"
    if left or code >= 0:
        how = f"it called sys.exit({code})" if left else f"its process ended with exit code {code}"
        return f"left early: {how}.", _TOO_EARLY
    name = {int(known): known.name for known in signal.Signals}.get(-code, "")
    manner = f"was killed by {name} (signal {-code})." if name else f"was killed by signal {-code}."
    detail = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL"
    if name == "SIGSEGV" and detail:
        return manner, _UNDER_DETAIL
    return manner, _ADVICE.get(name, "A signal ended it before its work was done.")
