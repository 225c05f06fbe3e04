"""One simulated rank, and the calls that it may wait for."""

from __future__ import annotations

import io
import threading
from collections.abc import Collection
from typing import Any, Protocol

from course_lib.context import Context
from course_lib.diagnosis.failures import Outcome
from course_lib.simulated.records import Record, Site
from course_lib.trace import Event, Span


class Waitable(Protocol):
    """A call that a rank makes, and may wait for."""

    @property
    def rank(self) -> Rank:
        """Whose call it is."""

    @property
    def record(self) -> Record:
        """What is written down of it."""

    @property
    def posted(self) -> bool:
        """Whether it has taken place."""

    def post(self) -> None:
        """It takes place now, on the rank's clock."""

    @property
    def met(self) -> Collection[Waitable]:
        """The calls that it has met, whatever the time."""

    @property
    def ready(self) -> bool:
        """Whether its values are there, whatever the time."""

    @property
    def on(self) -> tuple[int, ...]:
        """The ranks any of which could free who waits, or all of which have to call."""


class Rank(Context):
    """One simulated rank: its thread, its clock, what it has done and what it has to itself."""

    def __init__(self, scheduler: Any, number: int) -> None:
        self.scheduler: Any = scheduler  # which knows its ranks, so that one has to be unnamed
        self.number, self.clock = number, 0.0
        self.baton = threading.Lock()
        self.baton.acquire()
        self.thread: threading.Thread | None = None
        self.gone = False
        self.waits: Waitable | None = None
        self.records: list[Record] = []
        self.spans: list[Span] = []
        self.outcome: Outcome | None = None
        self.result: Any = None
        self.log: Any = None  # what it has done ahead of time: see ahead.py
        self.groups: Any = None  # those of all ranks: see group.py
        self.worlds = 0  # default groups that it has formed
        self.gpu: Any = None  # its streams, where it has a modelled GPU: see streams.py
        self.poisoned: list[Record] = []  # the call that fills each poisoned buffer
        self.digests: list[tuple[int, int]] = []  # of what it sent: how many calls before, digest
        # see private.py
        self.torch_state: Any = None
        self.generators: dict[int, Any] = {}
        self.environ: dict[Any, Any] = {}
        self.logging: dict[tuple[int, str], Any] = {}  # see log_settings.py
        self.handlers: dict[int, Any] = {}  # of signals, which nobody sends
        self.settings: list[Any] = []  # see compat.SETTINGS
        self.modules: dict[str, Any] = {}  # the user's own that it has imported
        self.pages = io.StringIO()

    def now(self) -> float:
        return self.scheduler.mark(self)

    def add_span(self, name: str, start: float, end: float) -> None:
        self.spans.append(Span(self.number, name, start, end))

    def compute(self, seconds: float) -> float | None:
        self.scheduler.check(self)
        return self.scheduler.compute(self, seconds)

    def record(self, op: Event, site: Site | None = None) -> Record:
        """Write down one more call."""
        record = Record(op, site)
        self.records.append(record)
        return record
