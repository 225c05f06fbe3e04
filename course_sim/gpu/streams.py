"""A rank's GPU: the host hands out work and goes on, streams do it later.

    host      ┬ compute ┬ all_reduce ┬ compute ┬ x.item() ─ ─ stands still ─ ─ ┬ goes on
              │ 5 µs    │ 5 µs       │ 5 µs    │                               │
    compute   └▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓┘
    lane      (one a group)  └▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒  behind what computed its input

The rank's clock is the host's. A Stream is one number: when it will have done all that it was
given. That is always known: at a wait, a rank's thread goes on only once it is known how long the
stream waits, and the host's clock stands still meanwhile. Only for a Lane may it still be open.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import torch

from course_lib.overlap import stretch
from course_sim.exchange.combine import Tensors
from course_sim.isolation.private import Patch, Replace, for_ranks
from course_sim.rank import Call, Rank, current
from course_sim.records import is_callers
from course_sim.scheduler import Scheduler

LAUNCH = 5e-6  # seconds of the host for each thing that it hands out; the stream may begin at once


class Moment:
    """A time ``at`` which something will have happened: the host may ask for it, or wait."""

    at = 0.0

    def query(self) -> bool:
        return self.at <= my_gpu().scheduler.read_clock()

    def synchronize(self) -> None:
        my_gpu().stand_still_until(self.at)


class Stream(Moment):
    """What torch.cuda.Stream and torch.cpu.Stream are in a rank with a GPU; ``at`` is when it will
    have done all that it was given.
    """

    name = "compute"

    def __init__(self, *_: Any, **__: Any) -> None:
        """A device and a priority may be given, and make no difference."""
        streams = my_gpu().streams
        self.name = f"side {len(streams)}"
        streams.append(self)

    def wait_event(self, other: Moment) -> None:
        self.wait_until(other.at)

    wait_stream = wait_event

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def is_capturing(self) -> bool:
        """No CUDA graph is modelled."""
        return False

    def wait_until(self, at: float) -> None:
        """What comes next on this stream waits; the host does not."""
        self.at = max(self.at, at)


class Event(Moment):
    """A mark on a stream; ``at`` is the time at which the stream comes by."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self._timing = enable_timing

    def record(self, stream: Stream | None = None) -> None:
        self.at = my_gpu().next_start(stream)

    def wait(self, stream: Stream | None = None) -> None:
        (stream or my_gpu().current).wait_event(self)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this mark to the other one."""
        if not (self._timing and end._timing):
            raise RuntimeError("both events need enable_timing=True")
        if not (self.query() and end.query()):
            raise RuntimeError("device not ready: call synchronize() before elapsed_time()")
        return (end.at - self.at) * 1e3


class Lane:
    """One rank's end of a communicator: the queue of its calls. Each call starts when those before
    it have ended, whichever stream it runs in.

    Note [The order of a communicator]. A call goes through Lane in four steps, and nccl.py relies
    on each: ``NcclScheduler.post`` gives it to the GPU, which ``put``s it into the lane;
    ``_begin_next`` posts it, at its own time, when nothing is under way; ``NcclScheduler.set_end``
    learns when it ends and frees the lane for the next; and a Work's ``wait`` delivers its values
    and those of all calls before it, since whoever waits for the last has waited for all. As long
    as a call is in ``unwaited``, ``call.work`` is its Work, so that the lane can deliver in the
    Work's place. If the order is lost, tests/course_sim/test_streams.py fails in
    test_one_communicator_keeps_the_order_of_its_calls_and_gloo_does_not.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._line: deque[tuple[float, list[Call]]] = deque()
        self.under_way: list[Call] = []  # begun, and their end is not known
        # Calls in order whose values are not in place yet, and whether the rank goes on meanwhile.
        self.unwaited: dict[Call, bool] = {}
        self.last: Any = None  # the last call that was put in line
        self._free = 0.0  # when the last call whose end is known ends

    def put(self, ready: float, calls: list[Call]) -> None:
        """Calls that begin together, not before ``ready``."""
        self._line.append((ready, calls))
        self.last = calls[-1]
        self._begin_next()

    def set_end(self, call: Call, at: float) -> None:
        """It is known when a call that is under way is over."""
        self.under_way.remove(call)
        self._free = max(self._free, at)
        self._begin_next()

    def deliver_before(self, call: Call) -> None:
        """Deliver the calls before this one, too: calls run in order, so all of them are over."""
        while call in self.unwaited:
            earlier = next(iter(self.unwaited))
            del self.unwaited[earlier]
            if earlier is not call:
                earlier.record.waited = True
                _deliver(earlier)

    def finish_before(self, tensors: Tensors) -> None:
        """A call is about to use these tensors: let earlier calls be done with them, as they will
        be when this one runs. The thread waits for their values.
        """
        wanted = list(map(stretch, tensors)) if any(self.unwaited.values()) else []
        for call, goes_on in list(self.unwaited.items()):
            theirs = list(map(stretch, call.work.memory)) if goes_on and call.work else []
            if any(a < stop and b < end for a, end in wanted for b, stop in theirs):
                self._scheduler.check(call.rank)
                if call.record.completed is None:
                    self._scheduler.park(call.rank, call)
                _deliver(call)

    def _begin_next(self) -> None:
        """Post the calls that are next in line, if nothing is under way."""
        if self.under_way or not self._line:
            return
        ready, batch = self._line.popleft()
        self.under_way = list(batch)

        def begin() -> None:
            for call in batch:
                call.post()

        self._scheduler.schedule(max(ready, self._free), begin)


def _deliver(call: Call) -> None:
    """Put what has come into place. The Work is the user's alone from then on."""
    work, call.work = call.work, None
    if work is not None:
        work.deliver()


class Gpu:
    """All streams of one rank."""

    def __init__(self, rank: Rank) -> None:
        self.scheduler: Scheduler = rank.scheduler
        self._rank = rank
        self.compute = self.current = object.__new__(Stream)
        self.streams = [self.compute]
        self.lanes: defaultdict[str, Lane] = defaultdict(partial(Lane, self.scheduler))
        self.batches: dict[str, list[Call]] = {}  # by group, while they are put together
        self.index = 0  # of the GPU that is the current one, among those of the machine
        self.visible: list[int] = []  # which GPUs of the machine the rank sees
        self.used: set[int] = set()  # those of them that it has named
        self.in_worker = False  # whether the rank plays a loader's worker, which was forked
        self.default: Any = None  # of set_default_device
        self.guess: int | None = None  # where a gradient lies in backward, which C++ has made
        self.gloo_too = False  # whether its groups take tensors of the host as well
        self.random = 0, 0  # seed and offset of the GPU's generator

    def next_start(self, stream: Stream | None = None) -> float:
        """When a stream would begin what it is given now."""
        return max((stream or self.current).at, self.scheduler.now)

    def run(self, seconds: float) -> float:
        """Give the current stream work; returns when it will have done it."""
        self.current.at = end = self.next_start() + seconds
        self.stand_still_until(self.scheduler.now + LAUNCH)
        return end

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that is moved to another place."""
        return tensor.clone()

    def look(self, name: str, tensor: Any) -> None:
        """The rank looks at a tensor's values, by this method: the host waits for them."""
        self.current.synchronize()

    def give(self, group: str, batch: list[Any]) -> None:
        """Hand calls to a communicator; they wait for what the current stream was given so far.
        Those that are not asynchronous run in that stream, which has to wait for them at once.
        """
        lane = self.lanes[group]
        for call in batch:
            op = call.record.op
            in_current = op.is_collective and not op.async_op  # torch's send does not know
            call.record.called = self.scheduler.now
            call.record.stream = self.current.name if in_current else "communicator"
            lane.unwaited[call] = not in_current
        lane.put(self.next_start(), batch)
        self.stand_still_until(self.scheduler.now + LAUNCH)

    def stand_still_until(self, at: float) -> None:
        self.scheduler.check(self._rank)
        self.scheduler.sleep_until(self._rank, at)

    def synchronize(self) -> None:
        """The host waits for all streams; what has come by then is in place."""
        for lane in self.lanes.values():
            for call in list(lane.unwaited):
                call.record.waited = True
                if call.work is not None:
                    call.work.wait()
        self.finish()

    def finish(self) -> None:
        """Let the clock show when all streams are done."""
        for lane in self.lanes.values():
            while lane.last.record.completed is None:
                self.scheduler.park(self._rank, lane.last)
            self.stand_still_until(lane.last.record.completed)
        self.stand_still_until(max(stream.at for stream in self.streams))


def my_gpu() -> Gpu:
    """The GPU of the rank whose thread is asking."""
    rank = current()
    assert rank is not None
    return rank.gpu


# ---- what is replaced ---------------------------------------------------------------------------

_LOOKS = (
    "item tolist cpu numpy nonzero "
    "__bool__ __int__ __float__ __index__ __repr__ __format__ __array__"
)


@contextmanager
def _use_stream(stream: Stream | None) -> Iterator[None]:
    """``with torch.cuda.stream(side):`` makes that stream the current one."""
    gpu = my_gpu()
    before, gpu.current = gpu.current, stream or gpu.current
    try:
        yield
    finally:
        gpu.current = before


def _wait_before_look(original: Any) -> Any:
    """A look at a tensor's values, which are on the GPU: the host waits for the current stream.
    A library's looks do not count: what it keeps on the CPU, as optimizers their step, cannot be
    told apart here from what it keeps on a GPU.
    """

    @wraps(original)
    def look(*args: Any, **kwargs: Any) -> Any:
        rank = current()
        if rank is not None and is_callers(sys._getframe(1)):
            rank.gpu.look(original.__name__, args[0])
        return original(*args, **kwargs)

    return look


def _replace_class(ours: type) -> Replace:
    """A class that makes ours in a rank's thread, and what it stands for elsewhere. It stays a
    class: torch asks ``isinstance(x, torch.cuda.Event)``.
    """

    def replace(original: Any) -> Any:
        def make(cls: type, *args: Any, **kwargs: Any) -> Any:
            return original(*args, **kwargs) if current() is None else object.__new__(cls)

        return type(ours.__name__, (ours,), {"__new__": make})

    return replace


def patches() -> list[Patch]:
    """What of torch is replaced in ranks with a GPU; a CPU-only torch has all of these, too."""
    synchronize = for_ranks(lambda rank, device=None: rank.gpu.synchronize())
    out: list[Patch] = [(torch.accelerator, "synchronize", synchronize)]
    for module in (torch.cuda, torch.cpu):
        out += [
            (module, "Stream", _replace_class(Stream)),
            (module, "Event", _replace_class(Event)),
            (module, "stream", for_ranks(lambda rank, stream: _use_stream(stream))),
            (module, "current_stream", for_ranks(lambda rank, device=None: rank.gpu.current)),
            (module, "synchronize", synchronize),
        ]
    out += [
        (torch.cuda, "default_stream", for_ranks(lambda rank, device=None: rank.gpu.compute)),
        (torch.cuda, "set_device", for_ranks(lambda rank, device: None)),
    ]
    out += [(torch.Tensor, name, _wait_before_look) for name in _LOOKS.split()]
    return [*out, (torch, "equal", _wait_before_look)]
