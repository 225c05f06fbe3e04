"""Play a case: call the answer in ranks and bring back what it did, whatever it does.

    check's process                 one fresh process                 ranks, modelled
    inputs by case  ──── run() ───► play_all: one case after ──────►  call_all: the answer, and
    judges          ◄── a file ──── another under simulate()          what each rank has then

The answer and the expected values never meet: this side plays, the other one judges. Every play
is written down as soon as it is over, so one that kills its process costs only itself.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import combinations, zip_longest
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import cloudpickle
import torch
import torch.distributed as dist

from course_lib.checks.cases import Case
from course_lib.checks.compare import alike, overlap, snapshot, tensors
from course_lib.checks.exercise import Exercise, Play, Seen
from course_lib.checks.kept import Kept
from course_lib.errors import CourseError, Hang, RankDied, RankFailed
from course_lib.patience import stretched
from course_lib.ranks import wrappers
from course_lib.ranks.parcel import pack
from course_lib.sites import show_lines
from course_lib.trace import Run

# Seconds of an idle machine after which a play is called a hang: by the simulator; by the system,
# where the play keeps even that from running; on real ranks. All plays together: see ``simulated``.
ONE_PLAY, STUCK, REAL, ALL_PLAYS = 2.5, 8, 6.0, 90.0
NOT_WRITTEN = "not written yet"


class BadSignature(TypeError):
    """The answer cannot be called with the arguments of its exercise."""


class CalledExit(RuntimeError):
    """The answer ended its rank by ``sys.exit``."""


class StartedProcess(RuntimeError):
    """The answer tried to start a process of its own."""


@dataclass(frozen=True)
class Answer:
    """What is checked: a function, or a source text that defines one of this name."""

    name: str
    function: Callable | None = None
    source: str = ""
    file: str = ""

    def load(self) -> Callable:
        if self.function is not None:
            return self.function
        show_lines(self.file, self.source)
        space: dict[str, Any] = {"__name__": "answer", "torch": torch, "dist": dist,
                                 "Tensor": torch.Tensor, "Callable": Callable}  # fmt: skip
        exec(compile(self.source, self.file, "exec", dont_inherit=True), space)
        return space[self.name]


def this_rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def call_all(function: Callable, rounds: list[tuple]) -> list[Seen]:
    """Call the answer once for each round of arguments; what is there afterwards.

    Tensors and models like those of the call before are the same ones, with other numbers in them:
    so does a loop that keeps its buffers.
    """
    mine: tuple = ()
    left: list[tuple] = []
    notes: list[tuple[str, ...]] = []
    returned: list[Any] = []
    for args in rounds:
        mine = _refilled(mine, args)
        lists, places = [list(a) for a in mine if isinstance(a, list)], _places(mine)
        own = tensors(mine)
        value = _call(function, mine)
        notes.append(_notes(mine, own, lists, places, value, returned))
        # What is the argument's own memory will not be what it was after another call.
        returned.append(snapshot(value) if notes[-1] == (ARGUMENTS,) else value)
        left.append(snapshot(mine))
    # Only now, after the last call: one that writes into what an earlier one returned shows.
    return [Seen(*parts) for parts in zip(map(snapshot, returned), left, notes, strict=True)]


def _refilled(before: tuple, args: tuple) -> tuple:
    return tuple(
        _copied(old, new) if _fits(old, new) else old.refill(new) if hasattr(old, "refill") else new
        for old, new in zip_longest(before, snapshot(args))
    )


def _copied(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """The old tensor with the new one's numbers; not written where it has them already."""
    return old if bool(alike(old, new).all()) else old.copy_(new)


def _fits(old: Any, new: Any) -> bool:
    return isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor) and (
        old.shape, old.dtype, old.stride()) == (new.shape, new.dtype, new.stride())  # fmt: skip


def _call(function: Callable, args: tuple) -> Any:
    try:
        inspect.signature(function).bind(*args)
    except TypeError as error:
        raise BadSignature(str(error)) from None
    try:
        return function(*args)
    except SystemExit as error:
        raise CalledExit(f"sys.exit({error.code!r})") from None
    except NotImplementedError as error:
        if str(error) == NOT_WRITTEN:
            return NOT_WRITTEN
        raise


def _places(args: tuple) -> list[tuple]:
    """Where in memory each tensor among the arguments lies, and how."""
    plain = [a for arg in args for a in (arg if isinstance(arg, list) else [arg])]
    return [(t.data_ptr(), t.stride()) for t in plain if isinstance(t, torch.Tensor) and t.numel()]


ARGUMENTS = "argument's memory"


def _notes(
    args: tuple, own: list, lists: list, places: list, returned: Any, earlier: list
) -> tuple[str, ...]:
    """What the values do not say: which memory is whose."""
    notes = []
    parts = tensors(returned)
    if any(overlap(a, b) for a, b in combinations(parts, 2)):
        notes.append("shared")
    if any(part is argument or overlap(part, argument) for part in parts for argument in own):
        notes.append(ARGUMENTS)
    if any(overlap(part, before) for part in parts for before in tensors(earlier)):
        notes.append("earlier memory")
    now = [a for a in args if isinstance(a, list)]
    if any(len(a) != len(b) for a, b in zip(now, lists, strict=True)):
        notes.append("other entries")
    elif any(x is not y for a, b in zip(now, lists, strict=True)
             for x, y in zip(a, b, strict=True)):  # fmt: skip
        notes.append("replaced entry")
    elif _places(args) != places:
        notes.append("replaced memory")
    return tuple(notes)


def _quiet() -> None:
    """What an answer prints is not part of its verdict, and may be megabytes."""
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(null, fd)


def _no_children() -> None:
    """A rank that forks would leave half a simulator behind: refuse before it happens."""

    def refuse(event: str, _: tuple) -> None:
        if event in ("os.fork", "os.forkpty", "os.exec", "os.system", "subprocess.Popen"):
            raise StartedProcess(event)

    sys.addaudithook(refuse)


def simulator_works() -> bool:
    """Whether this torch has what ``simulate`` needs."""
    from course_lib.simulated import compat

    return compat.missing() is None


def _unrecorded() -> None:
    """Take the recorder of real ranks off: the simulator records by itself, and looks at whose
    code a call comes from.
    """
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("torch.distributed")]
    for module in modules:
        for name, value in list(vars(module).items()):
            if type(value) is FunctionType and value.__code__.co_filename == wrappers.__file__:
                setattr(module, name, vars(value).get("__wrapped__", value))


@contextmanager
def carrying_zeros() -> Iterator[None]:
    """In here messages take their time and have their length, and zeros in them."""
    from course_lib.simulated import collective, hazards, mail

    def fill(tensor: torch.Tensor, data: bytes) -> None:
        hazards.fill(tensor, bytes(len(data)))

    def zeros(*given: Any) -> list[list[torch.Tensor]]:
        return [[torch.zeros_like(t) for t in of_one] for of_one in combine(*given)]

    combine, blank = collective.combine, SimpleNamespace(**vars(hazards) | {"fill": fill})
    vars(mail)["hazards"], vars(collective)["combine"] = blank, zeros
    try:
        yield
    finally:
        vars(mail)["hazards"], vars(collective)["combine"] = hazards, combine


def _play(function: Callable | bytes, rounds: list[Kept]) -> Kept:
    """Runs in every rank; ``rounds`` are the arguments of all ranks."""
    os.environ["LOCAL_RANK"] = str(this_rank() % 2)  # as on machines that have two ranks each
    own = function if callable(function) else _unpacked(function)
    seen = Kept(call_all(own, rounds[this_rank()].value))
    _ = seen.value  # what cannot be unpacked is this rank's failure, and not the judge's
    return seen


def _unpacked(function: bytes) -> Callable:
    from course_lib.simulated import compat

    return compat.unpickle_private(function)


def _packed_once(function: Callable) -> Callable | bytes:
    """The function as bytes, for many plays; as it is where a play has to say why it cannot be."""
    try:
        return pack(function)
    except Exception:  # whatever pickling a thing of the answer's own may raise
        return function


def play_all(
    answer: Answer, jobs: list[tuple[Case, int, list[Kept]]], needs: tuple[str, ...], log: str
) -> None:
    """Runs in a process of its own: every job in the simulator, each result into the log."""
    from course_lib.simulated import Network, simulate

    _import(needs)
    _quiet()
    _unrecorded()
    with open(log, "wb", buffering=0) as out:
        try:
            function = answer.load()
        except BaseException as error:  # the answer's own file: whatever it raises is a verdict
            text = f"the answer's file raises {type(error).__name__}: {error}"
            out.write(pickle.dumps(RankFailed(text, 0, "AtImport")))
            return
        _no_children()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        parcel = _packed_once(function)
        for case, schedule, rounds in jobs:
            signal.alarm(math.ceil(STUCK * stretched()))  # ends the process, whatever it is doing
            result: Any
            try:
                with carrying_zeros() if case.blank else nullcontext():
                    result = simulate(_play, parcel, rounds, world_size=case.world,
                                      network=Network(jitter=case.jitter), seed=schedule,
                                      limit=ONE_PLAY)  # fmt: skip
            except CourseError as error:
                result = error
            out.write(_pickled(result))
            if isinstance(result, Hang):
                return


def _pickled(result: Run | CourseError) -> bytes:
    try:
        return cloudpickle.dumps(result)
    except Exception as error:  # whatever __reduce__ of the answer's own classes may raise
        return pickle.dumps(RankFailed(f"what came back cannot be sent: {error}", 0, "Unpicklable"))


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)


def _play_real(answer: Answer, rounds: list[Kept], needs: tuple[str, ...]) -> Kept:
    """Runs in a real rank."""
    _import(needs)
    _quiet()
    return _play(answer.load(), rounds)


def make(exercise: Exercise, case: Case, world: str = "simulated") -> Play:
    rounds = [[exercise.inputs(case.call(k), r) for r in range(case.world)]
              for k in range(case.calls)]  # fmt: skip
    return Play(case, rounds, world=world)


def packed(play: Play) -> list[Kept]:
    """By rank: the arguments of every call."""
    return [Kept([by_rank[r] for by_rank in play.inputs]) for r in range(play.case.world)]


def simulated(exercise: Exercise, answer: Answer, cases: list[Case]) -> list[Play]:
    """Every case once, each under another schedule; fewer plays where one hangs or dies.

    The first whose time is up is played again: what a busy machine has held up goes well then.
    """
    plays = [make(exercise, case) for case in cases]
    jobs = [(p.case, number % 5, packed(p)) for number, p in enumerate(plays)]
    results, end = _played(exercise, answer, jobs)
    if end is None and results and isinstance(results[-1], Hang):
        again, end = _played(exercise, answer, jobs[len(results) - 1 :])
        results[-1:] = again
    if end is not None and len(results) < len(plays):
        results.append(end)
    for play, result in zip(plays, results, strict=False):
        settle(play, result)
    return plays[: len(results)]


def _played(
    exercise: Exercise, answer: Answer, jobs: list[tuple[Case, int, list[Kept]]]
) -> tuple[list[Run | CourseError], CourseError | None]:
    """What came of the jobs, as far as they went, and how their process ended if not well."""
    from course_lib import run

    end: CourseError | None = None
    with tempfile.TemporaryDirectory(prefix="course-check-") as folder:
        log = Path(folder) / "plays"
        log.touch()
        try:
            run(play_all, answer, jobs, exercise.needs, str(log), world_size=1, init=False,
                record=False, timeout=ALL_PLAYS * stretched())  # fmt: skip
        except RankDied as error:
            stuck = error.exit_code == -signal.SIGALRM
            end = Hang(f"nothing came back within {STUCK} s") if stuck else error
        except RankFailed as error:
            end = Broken(f"the check came to grief while it played this: {error}")
        except CourseError as error:
            end = error
        return _read(log), end


def _read(log: Path) -> list[Run | CourseError]:
    results = []
    with log.open("rb") as file:
        while True:
            try:
                results.append(pickle.load(file))
            except (EOFError, pickle.UnpicklingError):  # the end, or a play that was cut short
                return results


def real(exercise: Exercise, answer: Answer, case: Case) -> Play:
    """The case on real ranks: processes, gloo."""
    from course_lib import run

    play = make(exercise, case, world="on real ranks")
    try:
        outcome: Run | CourseError = run(_play_real, answer, packed(play), exercise.needs,
            world_size=case.world, timeout=REAL * stretched())  # fmt: skip
    except CourseError as error:
        outcome = error
    settle(play, outcome)
    return play


class Broken(CourseError):
    """The check itself failed while the answer was played."""


def settle(play: Play, outcome: Run | CourseError) -> None:
    """Write down in the play what became of it: of each rank its Seen by call, plain or Kept."""
    if isinstance(outcome, CourseError):
        play.error, play.run = outcome, outcome.run
        return
    play.run = outcome
    results = [r.value if isinstance(r, Kept) else r for r in outcome.results]
    play.seen = [list(by_rank) for by_rank in zip(*results, strict=True)]
    if not all(_whole(seen, args) for call, rounds in zip(play.seen, play.inputs, strict=True)
               for seen, args in zip(call, rounds, strict=True)):  # fmt: skip
        play.error = Broken("what the ranks had at the end did not come back whole")


def _whole(seen: Any, args: tuple) -> bool:
    return isinstance(seen, Seen) and isinstance(seen.args, tuple) and len(seen.args) == len(args)


def died(play: Play) -> bool:
    """Whether this play took its process along: nothing was played after it."""
    return isinstance(play.error, RankDied | Hang | Broken)
