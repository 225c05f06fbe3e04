"""Optimizers and DDP without torch._dynamo, which they import for three functions, for seconds."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

NAME = "torch._dynamo"
MARK = "__dynamo_disable"  # where torch keeps what ``disable`` has made of a function


class _Light(ModuleType):
    """Stands for torch._dynamo where nothing is compiled. Asked for more, it imports the real one
    and gives way to it."""

    utils = SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization")

    def __init__(self) -> None:
        super().__init__(NAME)
        self.marked: list[Callable] = []

    def disable(self, function: Callable, *_: Any, **__: Any) -> Callable:
        self.marked.append(function)
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
        for function in self.marked:
            vars(function).pop(MARK, None)
        self.marked.clear()


@contextmanager
def without_dynamo() -> Iterator[None]:
    """In here ``import torch._dynamo`` takes no time, unless it has been imported before."""
    if NAME in sys.modules:
        yield
        return
    light = _Light()
    sys.modules[NAME] = torch._dynamo = light
    try:
        yield
    finally:
        light.leave()
