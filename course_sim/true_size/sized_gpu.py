"""A rank's GPU with the figures of a real one.

Note [Host time is owed]. A kernel costs the host some microseconds, in which ranks that are earlier
may come first. But PyTorch may hold a lock while it asks for a kernel, as autocast does for its
cache of weights: if the baton went on there, the next rank would wait for that lock for ever. So
what a kernel costs the host is owed, and paid with the next call or look at a clock, before others
can notice. That also saves a change of threads for each kernel.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from course_lib.errors import CourseError
from course_lib.user_code import find_frame, line_of
from course_sim.gpu.nccl import NcclScheduler
from course_sim.gpu.streams import Gpu, Stream
from course_sim.isolation import compat
from course_sim.rank import Call, Rank
from course_sim.true_size.bytes_alive import BytesAlive
from course_sim.true_size.hardware import GPU
from course_sim.true_size.kernels import Cost

# By method that looks at a tensor's values, what the program has called.
_SHOWS = {"__repr__": "print", "__format__": "print", "__array__": "numpy", "numpy": "numpy"}


class SizedGpu(Gpu):
    """A rank's GPU that takes as long for a kernel as the figures of ``hardware`` say."""

    def __init__(self, rank: Rank, hardware: GPU) -> None:
        super().__init__(rank)
        self.hardware = hardware
        self.costs: dict[str, list[float]] = {}  # by kind: kernels, seconds, FLOPs, bytes
        self.alive = BytesAlive(lambda: (self.next_start(), rank.inside))
        self._owed = 0.0  # seconds of the host: see Note [Host time is owed]
        # by stream, from when until when it has run kernels without a gap
        self._busy: dict[str, tuple[float, float]] = {}

    def next_start(self, stream: Stream | None = None) -> float:
        return max((stream or self.current).at, self.scheduler.now + self._owed)

    def run(self, seconds: float) -> float:
        self.current.at = end = self.next_start() + seconds
        self._owed += self.hardware.launch
        return end

    def stand_still_until(self, at: float) -> None:
        owed, self._owed = self._owed, 0.0
        super().stand_still_until(max(at, self.scheduler.now + owed))

    def give(self, group: str, batch: list[Any]) -> None:
        self.stand_still_until(self.scheduler.now)
        super().give(group, batch)

    def run_kernel(self, cost: Cost) -> None:
        """Give the current stream a kernel, and write it down."""
        total = self.costs.setdefault(cost.kind, [0, 0.0, 0, 0])
        for place, amount in enumerate((1, *cost[1:])):
            total[place] += amount
        begun, stream = self.next_start(), self.current.name
        first, last = self._busy.get(stream, (begun, begun))
        if begun > last:
            self._rank.add_span("compute", first, last)
            first = begun
        self._busy[stream] = first, self.run(cost.seconds)

    def finish(self) -> None:
        super().finish()
        for first, last in self._busy.values():
            self._rank.add_span("compute", first, last)
        self._busy.clear()
        self._rank.memory = self.alive.curve

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the host that has values loses them: zeros that are made in the mode have
        none.
        """
        fake = isinstance(tensor, compat.FakeTensor)
        return tensor.clone() if fake else torch.zeros(tensor.shape, dtype=tensor.dtype)

    def look(self, name: str, tensor: Any) -> None:
        # A log line of a script that says "cuda" is content with the tensor's shape.
        shown = name in ("__repr__", "__format__") and self._rank.says_cuda
        if isinstance(tensor, compat.FakeTensor) and name in _SHOWS and not shown:
            self.refuse_value(_SHOWS[name])
        super().look(name, tensor)

    def refuse_value(self, asked: str) -> None:
        """End the simulation: somebody asks for what no tensor has here."""
        frame = find_frame(sys._getframe(1))
        where = f"   {line_of(frame)}" if frame else ""
        self.scheduler.fail(
            CourseError(
                f"rank {self._rank.number} asks for a value, by {asked}, and with gpu=… tensors "
                f"have shapes alone: leave that out.{where}"
            )
        )


class SizedScheduler(NcclScheduler):
    """See Note [Host time is owed]."""

    def __init__(self, hardware: GPU, *args: Any) -> None:
        self._hardware = hardware
        super().__init__(*args)

    def make_gpu(self, rank: Rank) -> Gpu:
        return SizedGpu(rank, self._hardware)

    def post(self, call: Call) -> None:
        call.rank.gpu.stand_still_until(self.now)
        super().post(call)

    def read_clock(self) -> float:
        if self.running is not None:
            self.running.gpu.stand_still_until(self.now)
        return self.now
