"""What a rank's tensors take: bytes alive now and at the peak, counted exactly.

    with count_memory(model) as memory:      a storage is counted once, however many tensors share
        loss = model(x).sum()                it, with the bytes that it has at the moment
        loss.backward()
    memory.peak, memory.now, memory.largest(), memory.largest(at_peak=True)

A TorchDispatchMode sees what operators make, and weak references tell what is gone. A storage may
shrink without any operator: ``fully_shard`` empties those into which it gathers. So the counter
asks each storage that is alive for its size after every operator.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, NamedTuple, Self

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_iter

from course_lib.context import current
from course_lib.trace import Curve, Line
from course_lib.user_code import find_frame, line_of


def count_memory(*given: Any) -> MemoryCounter:
    """Count the bytes of all tensor storages that are alive in this rank, in a ``with`` block.

    ``given`` is what exists already: tensors, modules (parameters, gradients, buffers),
    optimizers (their states), and lists, tuples and dicts of these. What operators take or make
    inside the block is counted from then on. Each rank counts its own, and the figures are the same
    under ``run``, ``simulate`` and on modelled GPUs. Not counted: the scratch memory of a single
    operator, and what Python keeps beside the storages. Under ``run`` gloo's thread may hold the
    tensors of a call some milliseconds longer than the call took, and a peak may catch them.
    gloo's reduce_scatter_tensor also works on a copy of its input, which only ``run`` counts.

    >>> with count_memory(model, optimizer) as memory:
    ...     with span("forward"):
    ...         loss = model(inputs).sum()
    >>> memory.peak, memory.largest(3)

    The trace keeps the curve, which ``draw.memory(run)`` shows with the spans.
    """
    return MemoryCounter(given)


class Held(NamedTuple):
    """A storage that is alive: its bytes, the tensor that first had it, and the line that made it.

    ``line`` is None if the tensor was given.
    """

    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    line: Line | None

    def __str__(self) -> str:
        since = f"   {self.line}" if self.line else ""
        return f"{self.nbytes:,} bytes: {self.dtype} {list(self.shape)}{since}"


class MemoryCounter(TorchDispatchMode):
    """See ``count_memory``. ``now``, ``peak`` and ``at_rest()`` are bytes."""

    def __init__(self, given: Any = (), *, draws: bool = True) -> None:
        super().__init__()
        self._draws = draws  # False: no curve is kept, and no clock asked at every operator
        # By the address of each storage, which may be used again once that storage is gone.
        self._seen: dict[int, tuple[weakref.ref, str, tuple[int, ...], Line | None]] = {}
        self.peak = 0
        self._at_peak = self._alive()
        self.curve: Curve = []
        for tensor in _list_tensors(given):
            self._see(tensor, None)

    def __enter__(self) -> Self:
        self._look()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._look()
        if self._draws:
            current().add_memory(self.curve)

    @property
    def now(self) -> int:
        """Bytes alive at this moment."""
        storages = (reference() for reference, *_ in list(self._seen.values()))
        return sum(storage.nbytes() for storage in storages if storage is not None)

    def at_rest(self) -> int:
        """Bytes alive once nothing is held by accident: garbage is collected, and the rank's other
        threads (gloo's) get a moment to drop the tensors of calls that are over.
        """
        gc.collect()
        current().let_go()
        self._look()
        return self.now

    def reset_peak(self) -> None:
        """Let ``peak`` begin anew, as ``torch.cuda.reset_peak_memory_stats`` does."""
        self.peak, self._at_peak = self.now, self._alive()

    def largest(self, count: int = 5, *, at_peak: bool = False) -> list[Held]:
        """The largest storages alive now, or when ``peak`` was reached; the largest first."""
        held = self._at_peak if at_peak else self._alive()
        return sorted(held, key=lambda one: -one.nbytes)[:count]

    def _alive(self) -> list[Held]:
        return [
            Held(storage.nbytes(), dtype, shape, line)
            for reference, dtype, shape, line in list(self._seen.values())
            if (storage := reference()) is not None and storage.nbytes()
        ]

    def _see(self, tensor: torch.Tensor, caller: FrameType | None) -> None:
        """Count a tensor's storage if it is a new one; only then look for the reader's line."""
        for part in _list_plain_parts(tensor):
            storage = part.untyped_storage()
            known = self._seen.get(storage._cdata)
            if known is None or known[0]() is None:
                own = find_frame(caller)
                dtype = str(part.dtype).removeprefix("torch.")
                about = dtype, tuple(part.shape), own and line_of(own)
                self._seen[storage._cdata] = weakref.ref(storage), *about

    def _look(self) -> None:
        """Take note of what is alive now, and forget what is not."""
        self._seen = {at: known for at, known in self._seen.items() if known[0]() is not None}
        now, inside = self.now, current().inside
        if now > self.peak:
            self.peak, self._at_peak = now, self._alive()
        if self._draws and (not self.curve or self.curve[-1][1:] != (now, inside)):
            self.curve.append((current().now(), now, inside))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a DTensor calls operators of its parts, which come here
        out = func(*args, **(kwargs or {}))
        for tensor in tree_iter((args, kwargs, out)):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor, sys._getframe(1))
        self._look()
        return out


def reading(memory: MemoryCounter, peak: bool = False) -> dict[str, Any]:
    """What an exercise notes: the bytes held at rest, or at the peak, and the largest holders."""
    held_bytes = memory.peak if peak else memory.at_rest()
    held = [str(one) for one in memory.largest(20, at_peak=peak) if one.line][:2]
    return {"memory": held_bytes, "largest": "; ".join(held)}


def _list_tensors(given: Any) -> Iterator[torch.Tensor]:
    """All tensors in what may be a module, an optimizer, a tensor or a collection of these."""
    if isinstance(given, torch.Tensor):
        yield given
        if given.is_leaf and given.grad is not None:
            yield given.grad
    elif isinstance(given, nn.Module):
        yield from _list_tensors([*given.parameters(), *given.buffers()])
    elif isinstance(given, torch.optim.Optimizer):
        yield from _list_tensors([given.param_groups, list(given.state.values())])
    elif isinstance(given, Mapping):  # subclasses, too: torch's pytree knows exact types alone
        yield from _list_tensors(list(given.values()))
    elif isinstance(given, (list, tuple)):
        for one in given:
            yield from _list_tensors(one)


def _list_plain_parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that hold a tensor's memory: a DTensor's part, a sparse one's values."""
    if is_traceable_wrapper_subclass(tensor):
        parts = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
        for part in parts:  # a DTensor also lists its mesh
            if isinstance(part, torch.Tensor):
                yield from _list_plain_parts(part)
    elif tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    elif tensor.layout is torch.strided and tensor.device.type != "meta":
        yield tensor
