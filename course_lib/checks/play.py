"""Play an answer's cases elsewhere: in the simulator of another process, or on real ranks.

simulated    all cases in one process, each under one of five schedules; results go into a file
             as they come, so that an answer that hangs or dies takes only the rest along
real         one case, on processes that talk by gloo
"""

from __future__ import annotations

import importlib
import math
import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import cloudpickle

from course_lib.checks.cases import Case
from course_lib.checks.exercise import Exercise, Play, Prepared, Seen
from course_lib.checks.in_rank import Answer, call_all, this_rank
from course_lib.checks.kept import Kept
from course_lib.errors import CourseError, Hang, RankDied, RankFailed
from course_lib.load_factor import load_factor
from course_lib.pickling import pack
from course_lib.ranks import wrappers
from course_lib.trace import Run

# Seconds of an idle machine after which a play is called a hang: by the simulator; by the system,
# where the play keeps even that from running; on real ranks. All plays together: see ``simulated``.
ONE_PLAY, STUCK, REAL, ALL_PLAYS = 2.5, 8, 6.0, 90.0


class StartedProcess(RuntimeError):
    """The answer tried to start a process of its own."""


class Broken(CourseError):
    """The check itself failed while the answer was played."""


# ---- in the process that plays -------------------------------------------------------------------


def play_all(
    answer: Answer, jobs: list[tuple[Case, int, list[Kept]]], exercise: dict[str, Any], log: str
) -> None:
    """Runs in a process of its own: every job in the simulator, each result into the log."""
    from course_lib.simulated import Network, simulate

    _prepare(exercise)
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
        packed = _packed_once(function)
        for case, schedule, rounds in jobs:
            signal.alarm(math.ceil(STUCK * load_factor()))  # ends the process, whatever it is doing
            result: Any
            try:
                network = Network(jitter=case.jitter, zeros=case.blank)
                result = simulate(_play, packed, rounds, exercise["ddp"], world_size=case.world,
                                  network=network, seed=schedule, limit=ONE_PLAY)  # fmt: skip
            except CourseError as error:
                result = error
            out.write(_pickled(result))
            if isinstance(result, Hang):
                return


def _play(function: Callable | bytes, rounds: list[Kept], ddp: bool) -> Kept:
    """Runs in every rank; ``rounds`` are the arguments of all ranks."""
    os.environ["LOCAL_RANK"] = str(this_rank() % 2)  # as on machines that have two ranks each
    own = function if callable(function) else _unpacked(function)
    seen = Kept(call_all(own, rounds[this_rank()].value, ddp))
    _ = seen.value  # what cannot be unpacked is this rank's failure, and not the judge's
    return seen


def _play_real(answer: Answer, rounds: list[Kept], exercise: dict[str, Any]) -> Kept:
    """Runs in a real rank."""
    _prepare(exercise)
    return _play(answer.load(), rounds, exercise["ddp"])


def _prepare(exercise: dict[str, Any]) -> None:
    """Import what would be imported in the middle; be quiet: what an answer prints is not part of
    its verdict, and may be megabytes."""
    for name in exercise["needs"]:
        importlib.import_module(name)
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(null, fd)


def _unpacked(function: bytes) -> Callable:
    from course_lib.simulated import compat

    return compat.unpickle_private(function)


def _packed_once(function: Callable) -> Callable | bytes:
    """The function as bytes, for many plays; as it is where a play has to say why it cannot be."""
    try:
        return pack(function)
    except Exception:  # whatever pickling a thing of the answer's own may raise
        return function


def _no_children() -> None:
    """A rank that forks would leave half a simulator behind: refuse before it happens."""

    def refuse(event: str, _: tuple) -> None:
        if event in ("os.fork", "os.forkpty", "os.exec", "os.system", "subprocess.Popen"):
            raise StartedProcess(event)

    sys.addaudithook(refuse)


def _unrecorded() -> None:
    """Take the recorder of real ranks off: the simulator records by itself, and looks at whose
    code a call comes from.
    """
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("torch.distributed")]
    for module in modules:
        for name, value in list(vars(module).items()):
            if type(value) is FunctionType and value.__code__.co_filename == wrappers.__file__:
                setattr(module, name, vars(value).get("__wrapped__", value))


def _pickled(result: Run | CourseError) -> bytes:
    try:
        return cloudpickle.dumps(result)
    except Exception as error:  # whatever __reduce__ of the answer's own classes may raise
        return pickle.dumps(RankFailed(f"what came back cannot be sent: {error}", 0, "Unpicklable"))


# ---- in the notebook -----------------------------------------------------------------------------


def simulator_works() -> bool:
    """Whether this torch has what ``simulate`` needs."""
    from course_lib.simulated import compat

    return compat.missing() is None


_prepared: dict[tuple[str, str], Prepared] = {}


def make(exercise: Exercise, case: Case, world: str = "simulated") -> Play:
    """A play of this case, not yet played."""
    key = exercise.title, repr(replace(case, blank=False))
    if key not in _prepared:
        rounds = [[exercise.inputs(case.call(k), r) for r in range(case.world)]
                  for k in range(case.calls)]  # fmt: skip
        _prepared[key] = Prepared(rounds)
    return Play(case, _prepared[key], world=world)


def simulated(exercise: Exercise, answer: Answer, cases: list[Case]) -> list[Play]:
    """Every case once, each under another schedule; fewer plays where one hangs or dies.

    The first whose time is up is played again: what a busy machine has held up goes well then.
    """
    plays = [make(exercise, case) for case in cases]
    jobs = [(p.case, number % 5, p.prepared.by_rank) for number, p in enumerate(plays)]
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
            run(play_all, answer, jobs, _facts(exercise), str(log), world_size=1, init=False,
                record=False, timeout=ALL_PLAYS * load_factor())  # fmt: skip
        except RankDied as error:
            stuck = error.exit_code == -signal.SIGALRM
            end = Hang(f"nothing came back within {STUCK} s") if stuck else error
        except RankFailed as error:
            end = Broken(f"the check came to grief while it played this: {error}")
        except CourseError as error:
            end = error
        return _read(log), end


def _facts(exercise: Exercise) -> dict[str, Any]:
    """What a rank has to know of an exercise."""
    return {"needs": exercise.needs, "ddp": exercise.ddp}


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
        outcome: Run | CourseError = run(
            _play_real, answer, play.prepared.by_rank, _facts(exercise),
            world_size=case.world, timeout=REAL * load_factor())  # fmt: skip
    except CourseError as error:
        outcome = error
    settle(play, outcome)
    return play


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
