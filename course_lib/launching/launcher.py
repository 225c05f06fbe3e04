"""How a world starts, works and ends.

    notebook                      fork server                rank r
       │ socket, pipe, files ───────► fork ────────────────────►│
       │ Plan ─────────────────────────────────────────────────►│ init_process_group
       │◄──────────────────────────────────────────────── ready │
       │ RankJob ──────────────────────────────────────────────►│ fn(*args)
       │◄────────────────────────────────────── output, outcome │
       │ shuts the world's socket ──► kill, reap

The first three lines have usually happened before ``run`` is called: see ``standby``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from course_lib.errors import interruptible
from course_lib.launching.plan import Deadline, make_plan
from course_lib.launching.standby import standby
from course_lib.pickling import pack_call
from course_lib.trace import Run


@interruptible("run()")
def run(
    fn: Callable,
    *args: Any,
    world_size: int | None = None,
    backend: str | None = None,
    timeout: float = 60.0,
    init: bool = True,
    record: bool = True,
) -> Run:
    """Run ``fn(*args)`` on every rank of a new world of real processes.

    ``fn`` is plain torch.distributed code, and may be defined in the cell above: inside it
    ``dist.get_rank()`` tells the ranks apart. It travels by value, with the globals that it uses,
    so what a rank changes stays in that rank; what ``fn`` returns comes back.

    Args:
        fn: called once on every rank.
        *args: any picklable values; each rank gets its own copy.
        world_size: number of ranks; 4 by default, under NCCL one per visible GPU.
        backend: "gloo" (CPU, the default) or "nccl" (one GPU per rank).
        timeout: seconds from the call on after which the ranks are stopped and a Hang is raised.
        init: False leaves ``dist.init_process_group`` to ``fn``; the processes are started with
            what torchrun would set, and recording starts inside that call.
        record: False records nothing: no Events, no spans, and a deadlock ends in a Hang.

    Returns:
        A Run: ``results`` by rank, ``trace``, ``seconds``, ``output``.

    Raises:
        RankFailed, RankDied, Deadlock, Hang, Mismatch, Hazard: see ``course_lib.errors``;
        CourseError for bad arguments. Whatever is raised, its ranks are ended.
    """
    deadline = Deadline(timeout)
    plan = make_plan(world_size, backend, init)
    call = pack_call(fn, args)
    # From here on there are processes to be ended, whatever happens: see Interrupts.
    with Interrupts() as interrupts:
        world = standby.take_world(plan)
        try:
            with interrupts.allowed():
                world.wait_until_ready(deadline)
                return world.work(call, deadline, record)
        finally:
            standby.replace(world)


class Interrupts:
    """Holds back SIGINT, if it has a handler in Python and this thread is the one that gets it.

    Python raises KeyboardInterrupt between any two instructions, even between the start of a
    process and the assignment that remembers it. Inside ``with Interrupts() as interrupts``, an
    interrupt is kept until ``with interrupts.allowed()``, where all the waiting is done. After a
    first interrupt, all others are kept until the world is cleared away.
    """

    _allowed = _kept = False

    def __enter__(self) -> Self:
        usual = signal.getsignal(signal.SIGINT)
        here = threading.current_thread() is threading.main_thread()
        self._usual: Any = usual if here and callable(usual) else None
        if self._usual:
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, _kind: Any, error: BaseException | None, _traceback: Any) -> None:
        if self._usual:
            signal.signal(signal.SIGINT, self._usual)
        if self._kept and not isinstance(error, KeyboardInterrupt):
            self._usual(signal.SIGINT, None)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let interrupts come, and first the one that was kept."""
        self._allowed = True
        try:
            if self._kept:
                self._handle(signal.SIGINT, None)
            yield
        finally:
            self._allowed = False

    def _handle(self, number: int, frame: Any) -> None:
        self._kept = not self._allowed
        if self._allowed:
            self._allowed = False  # nobody stops the clearing away that follows
            self._usual(number, frame)
            self._allowed = True  # its handler has not raised, so nothing ends
