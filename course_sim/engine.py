"""simulate(): from a function to a Run.

check the arguments ──► pickle ──► one execution ──► others, with other poison ──► Run or error
                                     │
          Scheduler (who runs when)  │  Fabric (what a message costs)
          Groups (who talks to whom) │  Privacy (what a process has to itself)
"""

from __future__ import annotations

import gc
import math
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from traceback import walk_stack
from types import ModuleType
from typing import Any, NamedTuple

import cloudpickle

from course_lib.diagnosis import deadlock, hazard
from course_lib.diagnosis.failure import RankOutcome, blame_who_left, root_cause
from course_lib.errors import CourseError, Hang, Hazard, Mismatch, Wait
from course_lib.pickling import pack_call, unpack_call
from course_lib.progress_line import ProgressLine
from course_lib.terminal import show
from course_lib.trace import Run, Trace, many_events
from course_lib.user_code import frame_lines, notebook_cells
from course_sim import ahead
from course_sim.agenda import Abandoned
from course_sim.early_reads import find_read
from course_sim.ends import poison
from course_sim.ends.poison import Buffers
from course_sim.ends.simulated_group import SimulatedGroup
from course_sim.exchange.groups import Groups
from course_sim.gpu import nccl, streams
from course_sim.isolation import compat
from course_sim.isolation.modules import is_imported, users_modules
from course_sim.isolation.packages import asked_early
from course_sim.isolation.private import Patch, Privacy
from course_sim.network import Fabric, Network
from course_sim.rank import Rank, current
from course_sim.records import LazyEvents, history, line_of_thread
from course_sim.scheduler import Scheduler
from course_sim.true_size.arguments import choose_played, most_ranks
from course_sim.true_size.hardware import GPU

_one_at_a_time = threading.Lock()


@dataclass
class Program:
    """What is simulated, and how: the arguments of simulate(). Raises CourseError if one is bad."""

    fn: Callable
    args: tuple
    world_size: int
    network: Network
    buffered: bool
    seed: int
    limit: float
    backend: str
    init: bool
    cuda: bool = False
    gpu: GPU | None = None
    play: Collection[int] | None = None

    def __post_init__(self) -> None:
        n, limit = self.world_size, self.limit
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise CourseError(f"world_size={n!r}: a world needs a whole number of ranks, 1 or more")
        self.play = choose_played(self.gpu, self.play, self.backend, n)
        if n > (most := most_ranks(self.play)):
            raise CourseError(
                f"world_size={n}: this machine can hold {most} simulated ranks; ask for fewer"
            )
        if not isinstance(self.network, Network):
            raise CourseError(f"network={self.network!r}: give a Network, as Network(latency=5e-6)")
        if not isinstance(self.seed, int):
            raise CourseError(f"seed={self.seed!r}: give a whole number")
        if not (isinstance(limit, (int, float)) and 0 < limit < math.inf):
            raise CourseError(f"limit={limit!r}: give a number of seconds above zero")
        if self.backend not in ("gloo", "nccl"):
            raise CourseError(f"backend={self.backend!r}: choose 'gloo' or 'nccl'")
        if self.cuda and self.backend != "nccl":
            raise CourseError("cuda=True: GPUs are modelled with backend='nccl' only")
        try:
            Fabric(self.network, n, self.seed)
        except ValueError as error:
            raise CourseError(str(error)) from None
        if current() is not None:
            raise CourseError("a simulated rank cannot simulate a world of its own")
        notebook_cells()  # names them, for the lines in events and errors
        with _pickled_by_value(self.fn) as self.modules:
            self.pickled = pack_call(self.fn, self.args)


class Rules(NamedTuple):
    """What differs between backends, and with ``cuda`` and ``gpu``."""

    scheduling: Callable[..., Scheduler]  # who decides what runs next
    grouping: type[Groups]  # all groups
    end: type[SimulatedGroup]  # a rank's end of one
    patches: Sequence[Patch] = ()  # what else is replaced in ranks
    modes: Sequence[Callable[[Rank], AbstractContextManager]] = ()  # what their function runs in


def _choose_rules(program: Program) -> Rules:
    """The rules of a program. Two kinds of modules are imported here, as they import much of torch,
    which other programs need not wait for.
    """
    if program.backend == "gloo":
        return Rules(Scheduler, Groups, SimulatedGroup)
    rules = Rules(nccl.NcclScheduler, nccl.NcclGroups, nccl.NcclGroup, streams.patches())
    if program.gpu is not None:
        from course_sim.true_size import shapes, sized_gpu, valueless

        scheduling = partial(sized_gpu.SizedScheduler, program.gpu)
        groups, end = valueless.ValuelessGroups, valueless.ValuelessGroup
        patches = [*shapes.patches(), *rules.patches]  # streams.py sees first who looks
        rules = Rules(scheduling, groups, end, patches, [shapes.Shapes])
    if program.cuda:
        from course_sim.gpu import cuda, placement

        patches, modes = [*rules.patches, *cuda.patches()], [*rules.modes, placement.Placement]
        rules = rules._replace(patches=patches, modes=modes)
    return rules


@contextmanager
def _pickled_by_value(fn: Any) -> Iterator[dict[str, ModuleType]]:
    """Pickle the module that a function of the user's own comes from by value, so that each
    rank gets the globals that the caller sees, as it gets those of a cell. Yields the user's other
    modules, which each rank imports for itself: see modules.py. If one of them imports the module
    of the function, that one is imported, too.
    """
    name = getattr(fn, "__module__", None) or "__main__"
    own = users_modules()
    if name not in own or is_imported(own[name], own):
        yield own
        return
    module = own.pop(name)
    cloudpickle.register_pickle_by_value(module)
    try:
        yield own
    finally:
        cloudpickle.unregister_pickle_by_value(module)


@cache
def _is_frozen_by_others() -> bool:
    """Whether somebody has frozen objects, as the fork server does for its ranks. Asked only once,
    as counting takes longer than a simulation.
    """
    return gc.get_freeze_count() > 0


@contextmanager
def _freeze_what_is_there() -> Iterator[None]:
    """Keep the garbage collector from what was there before: while ranks run, it would look through
    all objects of a notebook again and again, which takes ten times as long.
    """
    if _is_frozen_by_others():  # to unfreeze would undo theirs
        yield
        return
    gc.collect(1)  # what is frozen counts as old: garbage of the last simulation would stay there
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def simulate(*args: Any) -> Run:
    """See course_sim.simulate; the arguments are those of Program."""
    program = Program(*args)
    with _freeze_what_is_there():
        execution = execute(program)
    show(execution.output)
    for name, reason in (execution.privacy.modules.shared | asked_early).items():
        warnings.warn(f"all ranks share the module {name}, {reason}", RuntimeWarning, stacklevel=4)
    # Look for early reads by executing the program again, unless something worse has been found.
    error, note = execution.error, None
    ranks = execution.ranks if program.gpu is None else ()  # without values nothing is poisoned
    poisoned = sum(len(rank.poisoned) for rank in ranks)
    if any(len(rank.poisoned) > rank.buffers.most for rank in ranks):
        note = (
            f"{poisoned:,} buffers to fill: past {poison.MOST:,}, early reads are not searched for"
        )
    elif poisoned and not isinstance(error, (Hang, Hazard, Mismatch)):
        error = find_read(execution, partial(execute, program)) or error
    error = error or execution.find_unwaited()
    run = execution.as_run(note)
    # The error's traceback would keep the execution, with all that its ranks have left behind.
    del execution, ranks
    if error is not None:
        if isinstance(error, CourseError):
            error.run = run
        raise error
    return run


def execute(program: Program, side: int = 0, flip: tuple[int, int] = (-1, 0)) -> Execution:
    """Run the program ahead if that is worth it and goes well, otherwise step by step; and once
    more if ranks have changed what a package holds. ``side`` says which poison buffers get;
    ``flip`` is (rank, k): the first k buffers of that rank get the other poison.
    """
    ahead_first = program.world_size >= ahead.FROM and program.backend == "gloo"
    execution = Execution(program, side, flip, ahead_first)
    execution.play()
    changed = execution.privacy.packages.changed
    if ahead_first and not (execution.conclusive or changed):
        execution = Execution(program, side, flip)
        execution.play()
        changed = execution.privacy.packages.changed
    return execute(program, side, flip) if changed else execution


class Execution:
    """One pass over the program, from the first rank's start to the last one's end."""

    def __init__(
        self, program: Program, side: int, flip: tuple[int, int], run_ahead: bool = False
    ) -> None:
        self.program = program
        self.run_ahead = run_ahead
        self._failed: list[RankOutcome] = []
        self._left: list[RankOutcome] = []  # by sys.exit(), which is as good as returning
        n = program.world_size
        self._rules = rules = _choose_rules(program)
        scheduling = ahead.AheadScheduler if run_ahead else rules.scheduling
        self.scheduler = scheduling(n, program.seed, program.play or ())
        self.ranks = self.scheduler.ranks
        fabric = Fabric(program.network, n, program.seed)
        self.groups = rules.grouping(self.scheduler, fabric, program.buffered, program.init)
        most = 0 if program.gpu else poison.MOST // n  # without values there is nothing to poison
        for rank in self.ranks:
            rank.groups = self.groups
            rank.make_end = partial(rules.end, self.groups, rank)
            rank.says_cuda = program.cuda
            flipped = flip[1] if rank.number == flip[0] else 0
            rank.buffers = Buffers(most, side, flipped)

    def play(self) -> None:
        """Let all ranks run to their end, and find out what came of it."""
        program = self.program
        with ProgressLine(self._progress), _one_at_a_time, many_events():
            here = (program.cuda and program.network.gpus_per_node) or 0
            patches = self._rules.patches
            self.privacy = Privacy(self.scheduler, program.modules, patches, here)
            self.switch = self.privacy.switch
            with compat.separate_worlds(), self.privacy.in_place():
                self.scheduler.run(self, program.limit)
            self.error = self._find_error()
            self.conclusive = self.error is None or isinstance(self.error, Hang)
            if self.run_ahead and self.error is None:  # then find the times
                self.conclusive = ahead.Replay(self.groups, program.seed).run_logs()
        for failed in self._failed:
            compat.recast_as_callers(failed.exception)
        self.output = self.privacy.output()
        self.seconds = max(rank.clock for rank in self.ranks)

    def _find_error(self) -> BaseException | None:
        """What went wrong first, or else what is only seen at the end; None if nothing did."""
        error = self.scheduler.error or self._take_results()
        if error is None and self._failed:
            error = root_cause(self._failed)
        return error or self.groups.find_unfinished()

    def _take_results(self) -> CourseError | None:
        """Take the ranks' results, as objects of the caller's classes; or the error why not."""
        try:
            for rank in self.ranks:
                rank.result = rank.outcome and rank.outcome.value()
        except CourseError as error:
            return error
        return None

    def _progress(self) -> str:
        """How far it is. Ranks that run ahead have no time yet."""
        calls = sum(len(rank.records) for rank in self.ranks)
        time = max(rank.clock for rank in self.ranks)
        at = f" at {time:.3g} s of their time" if time else ""
        return f"simulating {self.program.world_size:,} ranks{at}: {calls:,} calls"

    def live(self, rank: Rank) -> None:
        """Do what a rank does, in its own thread."""
        self.privacy.enter(rank)
        # As in run(): the default group is there before the function begins, if ``init`` says so.
        if self.program.init:
            group = rank.make_end("0", self.groups.form(rank))
            compat.enter_world(group, self.groups.world.members)
        else:
            compat.enter_world()
        try:
            function, *args = compat.unpickle_private(self.program.pickled, unpack_call)
            with ExitStack() as modes:
                for mode in self._rules.modes:
                    modes.enter_context(mode(rank))
                result = function(*args)
            # as it comes back from a process
            rank.outcome = RankOutcome.of_result(rank.number, self.scheduler.now, result, function)
            if not rank.outcome.ended_well:
                self._failed.append(rank.outcome)
            if rank.has_gpu:
                rank.gpu.finish()
        except Abandoned:
            raise
        except BaseException as error:
            if self.scheduler.error is None:
                outcome = RankOutcome.of_exception(rank.number, self.scheduler.now, error)
                (self._left if outcome.ended_well else self._failed).append(outcome)
        finally:
            rank.clock = self.scheduler.now
            if not rank.gone:  # left behind in compiled code: its world has long been taken down
                compat.leave_world()

    def explain_standstill(self, parked: list[Rank]) -> BaseException:
        """Nobody can go on: the error that says why."""
        if self._failed:
            return root_cause(self._failed)
        if unfinished := self.groups.find_unfinished():
            return unfinished
        cause = self.groups.find_cause
        waits = {rank.number: cause(rank.waits) for rank in parked if rank.waits is not None}
        records, names = [rank.records for rank in self.ranks], self.groups.names
        error = deadlock.from_calls(
            blocked={r: w.record.op for r, w in waits.items()},
            lines={r: line_of_thread(self.ranks[r].thread) for r in waits},
            on={r: w.on for r, w in waits.items()},
            returned=[rank.number for rank in self.ranks if rank.gone and rank.thread],
            groups=names,
            advice=self.groups.advise(parked),
            history=lambda group: history(records, names[group], group),
        )
        return blame_who_left(error, self._left)

    def explain_overdue(self, rank: Rank, frame: Any, stuck: bool) -> Hang:
        """The error for a rank that does not end; ``stuck``: not even by an exception."""
        lines = frame_lines(reversed(list(walk_stack(frame)))) if frame else []
        text = [
            f"rank {rank.number} did not return within {self.program.limit:g} s.",
            *(f"    {line}" for line in lines),
        ]
        if stuck:
            text.append("It is inside compiled code that nobody can stop, and was left behind.")
        text.append("If it is only slow, give it longer: simulate(…, limit=seconds).")
        waits = [Wait(rank.number, "", lines[-1] if lines else None)]
        return Hang("\n".join(text), waits=waits)

    def find_unwaited(self) -> CourseError | None:
        """The Hazard for the first Work that nobody waited for, in time."""
        left = [record for rank in self.ranks for record in rank.records if not record.waited]
        first = min(left, key=lambda record: record.issued, default=None)
        return hazard.unwaited(first.event()) if first else None

    def as_run(self, note: str | None = None) -> Run:
        """What the caller of simulate() gets."""
        calls = [rank.records for rank in self.ranks]
        spans = sorted((s for r in self.ranks for s in r.spans), key=lambda s: (s.start, s.rank))
        events: Any = LazyEvents(calls)
        memory = {rank.number: rank.memory for rank in self.ranks if rank.memory}
        trace = Trace(events, spans, self.groups.names, note, memory)
        results = [rank.result for rank in self.ranks]
        run = Run(results, trace, self.seconds, len(calls), "simulated", self.output)
        if self.program.gpu is None:
            return run
        from course_sim.true_size import sized_run

        played = [self.ranks[r] for r in self.scheduler.played]
        return sized_run.add_kernels(run, self.program.gpu, played)
