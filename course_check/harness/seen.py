"""What one rank has after a call, as plain data that later writes do not reach.

``left`` turns a model into a dict of its parameters, gradients and buffers by name, an optimizer
into its state; ``leaves`` walks such data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from course_check.harness.kept import snapshot


@dataclass
class Seen:
    """What one rank has after one call: what came back, and what is left of its arguments.

    ``notes`` are what values do not show: what is in order and what is not, where memory is
    shared, and names of tensors that are other ones now; where it is expected, that an argument
    is "written".
    """

    returned: Any = None
    args: tuple = ()
    notes: tuple[str, ...] = ()


@dataclass(repr=False, eq=False)
class Noted:
    """An argument that notes, by name, what it sees. ``left()`` is what is compared, and
    ``remarks`` are what values do not show."""

    words: ClassVar[str] = "what it is given"
    noted: dict[str, Any] = field(default_factory=dict, kw_only=True)
    remarks: list[str] = field(default_factory=list, kw_only=True)

    def __repr__(self) -> str:
        return self.words

    def left(self) -> dict[str, Any]:
        return self.noted


def left(value: Any) -> Any:
    """What there is to compare of an argument, as data that later writes do not reach."""
    if isinstance(value, nn.Module):
        return snapshot(_read_module(value))
    if isinstance(value, torch.optim.Optimizer):
        states = enumerate(value.state.values())
        return snapshot({"optimizer": {f"{i}.{k}": v for i, s in states for k, v in s.items()}})
    if isinstance(value, TensorDataset):
        return snapshot(value.tensors)
    if hasattr(value, "left"):  # it has noted what was done to it
        return snapshot(value.left())
    if type(value) in (list, tuple):
        return type(value)(map(left, value))
    return snapshot(value)


def _read_module(model: nn.Module) -> dict[str, Any]:
    reduces = getattr(model, "require_backward_grad_sync", True)  # of DDP: False inside no_sync
    model = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    out: dict[str, Any] = {"training": model.training, "require_backward_grad_sync": reduces}
    for name, parameter in model.named_parameters():
        out[name] = parameter.data
        out[f"{name}.grad"] = parameter.grad
        out[f"{name}.requires_grad"] = parameter.requires_grad
    return out | dict(model.named_buffers())


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor, number, … in lists, tuples and dicts, with the way to it."""
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from leaves(item, f"{path}[{i}]")
    else:
        yield path, value


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether an element of the one lies where an element of the other lies."""
    one, other = (
        t.detach().view(torch.int16) if t.dtype == torch.bfloat16 else t.detach() for t in (a, b)
    )
    return numpy.shares_memory(one.numpy(), other.numpy())
