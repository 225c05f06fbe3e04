"""Play an answer's cases elsewhere: in the simulator of another process, or on real ranks.

``Player`` is what a check plays with, and what grading replaces by a player that trusts no answer:

    play_all     all cases in one process, under five schedules in turn; results go into a file
                 as they come, so that an answer that hangs or dies takes only the rest along
    play_real    one case, on processes that talk by gloo
"""

from __future__ import annotations

import builtins
import copy
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import IO

import torch.distributed as dist

from course_check.cases import Case
from course_check.exercise import After, Exercise, Lives, Play, Prepared
from course_check.harness.answer import Answer, Caught, call_all
from course_check.harness.kept import Kept, Unpacked
from course_check.harness.seen import Seen
from course_check.light import lightly
from course_lib.context import compute
from course_lib.errors import CourseError, Hang, NotStarted, RankDied, RankFailed
from course_lib.pickling import why
from course_lib.recording.log import nameless_file
from course_lib.trace import Run

# Seconds of processor time after which a play is called a hang: by the simulator (ONE_PLAY), or by
# the system, if the play keeps the simulator itself from running (STUCK). The system's limit holds
# for a play and its repetition together: a play is repeated to look for early reads.
ONE_PLAY, STUCK = 2.5, 10
# Seconds of the wall clock, which have to be enough on a busy machine: for a play that sleeps and
# keeps the simulator from running, for one on real ranks, and for all plays of an answer together.
ASLEEP, REAL, ALL_PLAYS = 15, 30.0, 600.0
A_LIFE = 30  # seconds of the wall for a play that waits for other processes
Job = tuple[Case, int, list[Kept]]  # a case, its schedule, by rank the arguments of every call
Result = Run | CourseError


class Broken(CourseError):
    """The check itself failed while the answer was played."""


class CannotCheck(CourseError):
    """This machine could not play the answer, of which nothing is known."""

    def __init__(self, why: object) -> None:
        super().__init__(
            f"check could not run here: {why}\n"
            "This says nothing about your answer. `python -m course_lib doctor` looks for what is "
            "missing on this machine."
        )

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


# ---- in the process that plays -------------------------------------------------------------------


def _simulate_all(
    answer: Answer,
    jobs: list[Job],
    ddp: bool,
    lives: Lives | None,
    places: list[str],
    log: str,
    asleep: int,
) -> None:
    """Runs in a process of its own: simulate every job, and write each result to the log."""
    _be_quiet()
    if lives:
        lives.start(answer.load, places)
    for alarm in (signal.SIGALRM, signal.SIGPROF):  # they end the process, whatever it is doing
        signal.signal(alarm, signal.SIG_DFL)
    with lightly(), open(log, "wb", buffering=0) as out:
        for job in jobs:
            longer = max(1.0, job[0].world / 8)  # each rank adds to what a play takes
            signal.setitimer(signal.ITIMER_PROF, STUCK * longer)
            signal.alarm(2 * A_LIFE if lives else int(asleep * longer))
            result = _simulate(answer, job, ddp, A_LIFE if lives else ONE_PLAY * longer)
            out.write(Kept(result).pickled)
            if isinstance(result, Hang):
                return


def _simulate(answer: Answer, job: Job, ddp: bool, limit: float) -> Result:
    """One job in the simulator; an error of the answer is a result."""
    from course_sim import simulate

    case, schedule, by_rank = job
    playing = partial(simulate, _play, answer, by_rank, ddp, case.busy, network=case.network)
    try:
        return playing(world_size=case.world, seed=schedule, backend=case.backend, limit=limit)
    except CourseError as error:
        return error


def _play(answer: Answer, by_rank: list[Kept], ddp: bool, busy: float = 0.0) -> Unpacked:
    """Runs in every rank; ``by_rank`` are the arguments of every call."""
    rank = dist.get_rank()
    os.environ["LOCAL_RANK"] = str(rank % 2)  # as on machines that have two ranks each
    if busy:
        compute(busy * (rank + 1))
    return Unpacked(call_all(answer.load(), by_rank[rank].value, ddp))


def _play_real(answer: Answer, by_rank: list[Kept], ddp: bool) -> Unpacked:
    """Runs in a real rank."""
    _be_quiet()
    with lightly():
        return _play(answer, by_rank, ddp)


def _be_quiet() -> None:
    """Send what the answer prints to nowhere: it is no part of a verdict, and may be megabytes."""
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(null, fd)


# ---- in the notebook -----------------------------------------------------------------------------


_prepared: dict[tuple[str, str], Prepared] = {}


def make_play(exercise: Exercise, case: Case, where: str = "simulated") -> Play:
    """A play of this case, not yet played."""
    key = exercise.title, repr(replace(case, blank=False))
    if key not in _prepared:
        by_call = [
            [exercise.inputs(case.call(k), r) for r in range(case.world)] for k in range(case.calls)
        ]
        _prepared[key] = Prepared(by_call)
    return Play(case, _prepared[key], where=where)


class Player:
    """Plays cases on this machine. Grading has another one, which trusts no answer."""

    @staticmethod
    def simulator_works() -> bool:
        """Whether this torch has what ``simulate`` needs."""
        from course_sim.isolation import compat

        return compat.missing() is None

    def play_all(self, exercise: Exercise, answer: Answer, cases: list[Case]) -> list[Play]:
        """Every case once, under five schedules in turn; fewer plays where one hangs or dies.

        The first whose time is up is played again: a busy machine may have held it up, and then it
        goes well.
        """
        plays = [make_play(exercise, case) for case in cases]
        jobs = [(p.case, number % 5, p.prepared.by_rank) for number, p in enumerate(plays)]
        results = _play_jobs(exercise, answer, jobs)
        # a Hang with a Run is one that the simulator has told, and not the system
        if results and isinstance(results[-1], Hang) and results[-1].run:
            results[-1:] = _play_jobs(exercise, answer, jobs[len(results) - 1 :])
        for play, result in zip(plays, results, strict=False):
            note_result(play, result)
        return plays[: len(results)]

    def play_real(self, exercise: Exercise, answer: Answer, case: Case) -> Play | None:
        """The case on real ranks: processes, gloo. None where a player has no such ranks."""
        from course_lib import run

        play = make_play(exercise, case, where="on real ranks")
        given = (answer, play.prepared.by_rank, exercise.ddp)
        try:
            result: Result = run(_play_real, *given, world_size=case.world, timeout=REAL)
        except CourseError as error:
            result = _blame_machine(error)
        note_result(play, result)
        return play


HERE = Player()


def _play_jobs(exercise: Exercise, answer: Answer, jobs: list[Job]) -> list[Result]:
    """What came of the jobs, as far as they went. If their process did not end well, its end is the
    last result."""
    from course_lib import run

    end: list[Result] = []
    with ExitStack() as stack:
        log = stack.enter_context(os.fdopen(nameless_file("results"), "rb"))
        places = stack.enter_context(exercise.lives.folders()) if exercise.lives else []
        file = f"/proc/{os.getpid()}/fd/{log.fileno()}"  # no disk has to have room for it
        given = (answer, jobs, exercise.ddp, exercise.lives, places, file, ASLEEP)
        try:
            run(_simulate_all, *given, world_size=1, init=False, record=False, timeout=ALL_PLAYS)
        except CourseError as error:
            end = [_explain_end(error)]
        except (OSError, MemoryError) as error:  # in this process, where no answer runs
            end = [NotStarted(why(error))]
        return [*_read_results(log), *end][: len(jobs)]


def _explain_end(error: CourseError) -> CourseError:
    """The error that the end of the playing process tells about the answer."""
    if isinstance(error, RankDied) and -error.exit_code in (signal.SIGALRM, signal.SIGPROF):
        return Hang(f"nothing came back within {STUCK} s")
    if not isinstance(error, RankFailed):
        return _blame_machine(error)
    # The simulator catches the answer's own exceptions: this one is ours, or the system's.
    kind = getattr(builtins, error.kind, Exception)
    blamed = NotStarted if issubclass(kind, OSError | MemoryError) else Broken
    return blamed(f"the check came to grief while it played this: {error}")


def _blame_machine(error: CourseError) -> CourseError:
    """The error, or a NotStarted in its place if it says nothing of the answer."""
    if isinstance(error, RankDied) and error.exit_code == -signal.SIGKILL:
        return NotStarted(f"memory ran out, or somebody ended a process of the check. {error}")
    late = isinstance(error, Hang) and error.run is None  # the ranks had not begun
    return NotStarted(str(error)) if late else error


def _read_results(log: IO[bytes]) -> Iterator[Result]:
    """The results in the log, up to one that was cut short."""
    while True:
        try:
            yield pickle.load(log)
        except (EOFError, pickle.UnpicklingError):
            return


def note_result(play: Play, result: Result) -> None:
    """Write down in the play what became of it: the Seen of each rank, by call.

    Raises CannotCheck if that says nothing of the answer.
    """
    if isinstance(result, NotStarted):
        raise CannotCheck(result)
    play.run = result.run if isinstance(result, CourseError) else result
    if isinstance(result, RankFailed) and result.kind == Caught.__name__:
        _note_caught(play, result)
        return
    if isinstance(result, CourseError):
        play.error = result
        return
    play.seen = [After(ranks) for ranks in zip(*result.results, strict=True)]
    if not all(
        isinstance(seen, Seen) and len(seen.args) == len(args)
        for call, given in zip(play.seen, play.inputs, strict=True)
        for seen, args in zip(call, given, strict=True)
    ):
        play.error = Broken("what the ranks had at the end did not come back whole")


def _note_caught(play: Play, error: RankFailed) -> None:
    """Note that an answer which is a test has failed: if it fails on one rank, it has failed."""
    tested = [copy.deepcopy(args[0]) for args in play.inputs[0]]
    for one in tested:
        one.note_failure()
    play.seen = [After(Seen(None, (one.left(),)) for one in tested)]
    play.caught = str(error).replace(f"{Caught.__name__}:", "AssertionError")
