"""What a check needs of torch, without what it does not: several threads, and torch._dynamo."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

NAME = "torch._dynamo"


class _NoDynamo(ModuleType):
    """Stands for torch._dynamo, which optimizers and DDP import for three functions, for seconds.
    Asked for more, it gives way to the real one."""

    utils = SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization")

    def __init__(self) -> None:
        super().__init__(NAME)
        self.kept: list[Callable] = []

    def disable(self, function: Callable, *_: Any, **__: Any) -> Callable:
        self.kept.append(function)
        return function

    def graph_break(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # who looks through all modules
            raise AttributeError(name)
        self.leave()
        return getattr(importlib.import_module(NAME), name)

    def leave(self) -> None:
        """Nothing remembers that this has been here."""
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME], torch._dynamo
        for function in self.kept:
            vars(function).pop("__dynamo_disable", None)  # where torch keeps what it was given
        self.kept.clear()


@contextmanager
def lightly() -> Iterator[None]:
    """In here torch computes on one thread, as a few numbers are faster then, and does without
    torch._dynamo, unless that has been imported before."""
    threads, stand_in = torch.get_num_threads(), _NoDynamo()
    torch.set_num_threads(1)
    if NAME not in sys.modules:
        sys.modules[NAME] = torch._dynamo = stand_in
    try:
        yield
    finally:
        stand_in.leave()
        torch.set_num_threads(threads)
