"""One simulated rank, and a call that it makes and may wait for.

A Rank holds what other modules keep for it, and is passed to all of them. So they import this
module, and it imports them for type checkers alone.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from course_lib import context
from course_lib.diagnosis.failure import RankOutcome
from course_lib.errors import Hazard
from course_lib.trace import Curve, Event, Span
from course_sim.records import Record, Site

if TYPE_CHECKING:
    from course_sim.ends.poison import Buffers
    from course_sim.ends.simulated_group import SimulatedGroup
    from course_sim.exchange.groups import Groups
    from course_sim.gpu.streams import Gpu
    from course_sim.scheduler import Scheduler


class Rank(context.Context):
    """One simulated rank: its thread, its clock, what it has done and what it has to itself."""

    # What the engine gives each rank before the first one runs:
    groups: Groups  # those of all ranks
    make_end: Callable[..., SimulatedGroup]  # of a group, from its name and Channel: the rank's own
    buffers: Buffers  # the rank's own, which calls have yet to fill
    gpu: Gpu  # its streams, where it has a modelled GPU
    has_gpu = False
    says_cuda = False  # whether its tensors may lie on that GPU: see gpu/placement.py

    def __init__(self, scheduler: Scheduler, number: int) -> None:
        self.scheduler = scheduler
        self.number, self.clock = number, 0.0
        self.baton = threading.Lock()
        self.baton.acquire()
        self.thread: threading.Thread | None = None
        self.gone = False
        self.waits: Call | None = None
        self.records: list[Record] = []
        self.spans: list[Span] = []
        self.memory: Curve = []
        self.outcome: RankOutcome | None = None
        self.result: Any = None
        self.log: list[Any] = []  # what it has done ahead of time: see ahead.py
        self.worlds = 0  # default groups that it has formed
        # For early_reads.py: the call that fills each poisoned buffer; and of each thing that the
        # rank sent, how many calls came before, and a digest.
        self.poisoned: list[Record] = []
        self.digests: list[tuple[int, int]] = []
        # What isolation/private.py swaps:
        self.torch_state: Any = None
        self.generators: dict[type, Any] = {}
        self.environ: dict[Any, Any] = {}
        self.logging: dict[tuple[int, str], Any] = {}  # see log_settings.py
        self.handlers: dict[int, Any] = {}  # of signals, which nobody sends
        self.settings: list[Any] = []  # of torch: see compat.py
        self.modules: dict[str, Any] = {}  # the user's own that it has imported
        self.packages: dict[int, Any] = {}  # what it has put into installed ones
        self.importing = ""  # such a package, while the rank imports it for all
        self.pages = io.StringIO()

    def now(self) -> float:
        return self.gpu.next_start() if self.has_gpu else self.scheduler.read_clock()

    def add_span(self, name: str, start: float, end: float) -> None:
        self.spans.append(Span(self.number, name, start, end))

    def add_memory(self, curve: Curve) -> None:
        self.memory += curve

    def compute(self, seconds: float) -> float | None:
        if self.has_gpu:
            return self.gpu.run(seconds)
        self.scheduler.spend(self, seconds)
        return None

    def not_before(self, at: float) -> None:
        """What it computes next needs something that is there at ``at``."""
        if self.has_gpu:
            self.gpu.current.wait_until(at)
        else:
            self.scheduler.sleep_until(self, at)

    def record(self, op: Event, site: Site | None = None) -> Record:
        """Write down one more call."""
        record = Record(op, site)
        self.records.append(record)
        return record

    def note_sent(self, data: bytes) -> None:
        """The rank sends this: keep a digest, which poison that was read would change."""
        if len(self.poisoned) <= self.buffers.most:  # more are not searched
            self.digests.append((len(self.records), hash(data)))


def current() -> Rank | None:
    """The rank whose thread is asking, or None."""
    here = context.current()
    return here if isinstance(here, Rank) else None


class Call:
    """One call of one rank: what the scheduler orders in time, and its Work may ask about."""

    __slots__ = ("number", "posted", "rank", "record", "work")

    def __init__(self, rank: Rank, op: Event, site: Site) -> None:
        self.rank, self.record = rank, rank.record(op, site)
        self.number = len(rank.records)  # of calls of the rank, this one included
        self.posted = False  # whether it has taken place
        self.work: Any = None  # the rank's, where a GPU's lane has to know it

    def post(self) -> None:
        """It takes place now, on the rank's clock."""
        raise NotImplementedError

    @property
    def counterparts(self) -> Collection[Call]:
        """The calls that it has met, whatever the time."""
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        """Whether its values are there, whatever the time."""
        raise NotImplementedError

    @property
    def on(self) -> tuple[int, ...]:
        """The ranks that a rank which waits for this call depends on: any of them could send, or
        all of them have to call.
        """
        raise NotImplementedError

    @property
    def waited(self) -> bool:
        return self.record.waited

    def wait(self, timeout: Any = None) -> None:
        self.record.waited = True
        self.rank.scheduler.wait_for(self, timeout)

    def poll(self) -> Any:
        """Ask whether it is over."""
        self.rank.scheduler.poll(self)

    def accuse(self, make: Callable[..., Hazard], *numbers: int, **more: bool) -> None:
        """The rank's end has seen that its calls of these numbers broke a rule. ``make``, one of
        the functions of diagnosis/hazard.py, makes the error. Raises what ends the simulation.
        """
        ops = (self.rank.records[number - 1].op for number in numbers)
        self.rank.scheduler.fail(make(*ops, **more))
