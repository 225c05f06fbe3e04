"""What the ranks said to one another: the record that everything else reads.

    Run
     ├── results      what the function returned, by rank
     ├── output       what the ranks printed, as it was shown
     ├── seconds      wall-clock under run(), virtual under simulate()
     └── trace
          ├── events    one Event per torch.distributed call, in order of time
          ├── spans     stretches of time that a rank named with span("forward")
          ├── groups    group name -> the global ranks in it
          └── messages  each send beside the recv that took it

A Trace is plain data: it can be pickled, compared, drawn, checked and exported, and nothing
in here starts, patches or imports anything of the course.
"""

from __future__ import annotations

import gc
import json
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self


class Line(str):
    """A place in somebody's source that reads as itself: ``cell [7], line 5:  dist.recv(x, 1)``.

    ``where`` is the cell or file, ``number`` the line's number in it, ``source`` its stripped
    text (empty where the source is not to be had), ``function`` the name of the function, and
    ``file`` where Python finds the text on this machine (empty where nobody knows).
    """

    where: str
    number: int
    source: str
    function: str
    file: str

    def __new__(
        cls, where: str, number: int, source: str = "", function: str = "", file: str = ""
    ) -> Self:
        place = f"{where}, line {number}"
        line = super().__new__(cls, f"{place}:  {source}" if source else place)
        line.where, line.number, line.source, line.function = where, number, source, function
        line.file = file
        return line

    def __reduce__(self) -> tuple[type[Line], tuple[str, int, str, str, str]]:
        return Line, (self.where, self.number, self.source, self.function, self.file)


@dataclass(frozen=True, slots=True)
class Event:
    """One call of ``torch.distributed`` on one rank.

    ``op`` is named as in torch.distributed and does not say whether the call was asynchronous:
    an ``isend`` is an Event with ``op="send"`` and ``async_op=True``. ``peer`` is a global rank:
    the destination of a send, the source of a recv, the root of a rooted collective; None where
    there is none, and for a receive from any source until a message has come.

    ``nbytes`` is the larger of what the call reads and what it writes on this rank, in bytes
    (the size S of the nccl-tests); ``dtype`` and ``shape`` are those of its first tensor.
    ``in_splits`` and ``out_splits`` are, where each pair of ranks may have a size of its own
    (all_to_all), how many elements this rank gives to each rank of the group, and how many it
    expects from each.
    Times are seconds since the run began. ``completed`` is None where nothing ever said that
    the operation was done.
    """

    rank: int
    op: str
    peer: int | None
    group: str
    nbytes: int
    dtype: str | None
    shape: tuple[int, ...]
    issued: float
    completed: float | None
    line: Line | None
    tag: int = 0
    reduce_op: str | None = None
    async_op: bool = False
    waited: bool = True  # False: an asynchronous call whose Work nobody waited for
    bytes_in: int = 0  # what the call reads on this rank
    bytes_out: int = 0  # what it writes
    contiguous: bool = True
    seq: int = 0  # position among this rank's events, in order of issue
    called: float | None = None  # on a modelled GPU: when the host called; ``issued`` is when its
    # stream began the operation
    in_splits: tuple[int, ...] | None = None  # None: not known, or the op has no such sizes
    out_splits: tuple[int, ...] | None = None
    stream: str | None = None  # of a modelled GPU: "compute", "side 1" or "communicator"
    # What the call is a part of: "broadcast_object_list" and the like, which call others, or the
    # module for which fully_shard makes it; "" where there is no such thing.
    within: str = ""

    @property
    def is_send(self) -> bool:
        return self.op == "send"

    @property
    def is_recv(self) -> bool:
        return self.op == "recv"

    @property
    def is_collective(self) -> bool:
        return self.op != "send" and self.op != "recv"

    @property
    def channel(self) -> tuple[str, int | None, int | None, int]:
        """Group, source, destination and tag: the k-th send of these meets the k-th recv."""
        ends = (self.rank, self.peer) if self.is_send else (self.peer, self.rank)
        return self.group, *ends, self.tag

    @property
    def name(self) -> str:
        """The call as the reader wrote it: an asynchronous send is an ``isend``."""
        return self.op if self.is_collective or not self.async_op else f"i{self.op}"

    def __str__(self) -> str:
        peer = "" if self.peer is None else f" {'to' if self.is_send else 'from'} {self.peer}"
        size = f" {self.nbytes} bytes" if self.nbytes else ""
        return f"rank {self.rank} {self.op}{peer}{size}"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one rank's time with a name, from ``start`` to ``end`` in seconds."""

    rank: int
    name: str
    start: float
    end: float


# How many bytes of tensors were alive on a rank: (from which second on, bytes, in which span), in
# order of time. Of a simulated rank many may have the same time, as computing takes none.
Curve = list[tuple[float, int, str]]


@dataclass(frozen=True, slots=True)
class Message:
    """A send and the recv that took it; ``recv`` is None where nobody did."""

    send: Event
    recv: Event | None

    @property
    def src(self) -> int:
        return self.send.rank

    @property
    def dst(self) -> int:
        assert self.send.peer is not None
        return self.send.peer

    @property
    def nbytes(self) -> int:
        return self.send.nbytes


@dataclass(frozen=True)
class Trace:
    """All Events and Spans of a run, ordered by time, then rank.

    ``note`` is None, or one line that says why the trace is empty or incomplete. ``memory`` has
    the Curve of each rank that counted it.
    """

    events: list[Event] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    note: str | None = None
    memory: dict[int, Curve] = field(default_factory=dict)

    def __repr__(self) -> str:
        note = f", note={self.note!r}" if self.note else ""
        return f"Trace({len(self.events)} events, {len(self.spans)} spans{note})"

    @cached_property
    def by_rank(self) -> list[Event]:
        """By rank, then in order of issue: the order that every run of a program shares."""
        return sorted(self.events, key=lambda e: (e.rank, e.seq))

    def of(self, rank: int) -> list[Event]:
        """The Events of one rank, in the order in which it issued them."""
        return [e for e in self.by_rank if e.rank == rank]

    def ops(self, *names: str) -> list[Event]:
        """The Events whose ``op`` is one of ``names``."""
        return [e for e in self.events if e.op in names]

    @cached_property
    def messages(self) -> list[Message]:
        """Each send with its recv. As in torch, the messages of one channel stay in order."""
        waiting: dict[tuple, deque[Event]] = defaultdict(deque)
        for event in self.by_rank:
            if event.is_recv and event.peer is not None:
                waiting[event.channel].append(event)
        pairs = []
        for event in self.by_rank:
            if event.is_send:
                queue = waiting[event.channel]
                pairs.append(Message(event, queue.popleft() if queue else None))
        return sorted(pairs, key=lambda m: (m.send.issued, m.src, m.send.seq))

    def bytes_sent(self, rank: int) -> int:
        """Bytes that this rank handed to ``send``: exact for point-to-point, and nothing else."""
        return sum(e.nbytes for e in self.events if e.rank == rank and e.is_send)

    def save(self, path: str | Path) -> Path:
        """Write the trace in the Chrome trace format; open the file at https://ui.perfetto.dev.

        Format: "Trace Event Format", Google, 2016. Times there are microseconds.
        """
        path = Path(path)
        path.write_text(json.dumps({"traceEvents": [*self._chrome_events()]}, indent=0) + "\n")
        return path

    def _chrome_events(self) -> Iterator[dict[str, Any]]:
        """The names of ranks and lanes, a box for each call and span, an arrow for each message."""
        for rank in sorted({e.rank for e in self.events} | {s.rank for s in self.spans}):
            yield _chrome("M", rank, 0, "process_name", args={"name": f"rank {rank}"})
            for lane, name in enumerate(("communication", "spans")):
                yield _chrome("M", rank, lane, "thread_name", args={"name": name})
        shown = "peer", "nbytes", "dtype", "shape", "group"
        for e in self.events:
            end = e.issued if e.completed is None else e.completed
            args = {name: getattr(e, name) for name in shown} | {"line": str(e.line or "")}
            yield _chrome("X", e.rank, 0, e.op, e.issued, end, args=args)
        for s in self.spans:
            yield _chrome("X", s.rank, 1, s.name, s.start, s.end, args={})
        for number, m in enumerate(self.messages):
            if m.recv is not None and m.recv.completed is not None:
                arrow: dict[str, Any] = {"bp": "e", "id": number, "cat": "message"}
                yield _chrome("s", m.src, 0, "message", m.send.issued, **arrow)
                yield _chrome("f", m.dst, 0, "message", m.recv.completed, **arrow)


def _chrome(
    ph: str, rank: int, lane: int, name: str, start: float = 0.0, end: float = 0.0, **more: Any
) -> dict[str, Any]:
    """One record of the Chrome trace format, of the phase ``ph``; times are in seconds here."""
    record = {"ph": ph, "pid": rank, "tid": lane, "name": name, "ts": start * 1e6, **more}
    return record | ({"dur": max(0.0, end - start) * 1e6} if ph == "X" else {})


@dataclass(frozen=True)
class Run:
    """What came of running one function on a world of ranks.

    ``results[r]`` is what the function returned on rank r. ``seconds`` runs from the moment the
    function starts until the last rank has returned from it: wall-clock time under ``run``,
    virtual time under ``simulate``. Starting the processes is not in it.
    """

    results: list[Any]
    trace: Trace
    seconds: float
    world_size: int
    backend: str
    output: str = ""

    def __repr__(self) -> str:
        size, events = self.world_size, len(self.trace.events)
        return f"Run(world_size={size}, backend={self.backend!r}, events={events})"


@contextmanager
def many_events() -> Iterator[None]:
    """Around the making of millions of small records that live until the end: the garbage collector
    shall not look through them again and again.
    """
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
