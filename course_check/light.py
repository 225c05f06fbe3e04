"""torch as a check needs it: on one thread, and without torch._dynamo."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

NAME = "torch._dynamo"


# Note [The stand-in for torch._dynamo]
#
# Optimizers, DDP and checkpoint() import torch._dynamo, torch's compiler, when they are first used.
# That takes seconds in each process that plays. They use three of its functions and one setting,
# and none of these does anything where nothing is compiled. So a module with these names stands in
# its place while a check plays. An answer, or a newer torch, that asks for any other name gets the
# real module at once, under the same name. tests/course_check/test_tables.py says which of the two
# happens, and which of the names torch no longer has.


class _NoDynamo(ModuleType):
    """Stands for torch._dynamo. Asked for more than it has, it gives way to the real one."""

    config = SimpleNamespace(error_on_nested_fx_trace=True)
    utils = SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization")
    disable = staticmethod(lambda function, *_, **__: function)
    graph_break = staticmethod(lambda: None)

    def __getattr__(self, name: str) -> Any:
        # inspect and warnings look through all modules, and ask for no part of the compiler.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        sys.modules.pop(NAME, None)
        vars(torch).pop("_dynamo", None)  # the real one asks itself for its parts by this name
        return getattr(importlib.import_module(NAME), name)


@contextmanager
def lightly() -> Iterator[None]:
    """In here torch computes on one thread, on which a few numbers are faster. It does without
    torch._dynamo, unless that has been imported before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    if NAME not in sys.modules:
        sys.modules[NAME] = torch._dynamo = _NoDynamo(NAME)
    try:
        yield
    finally:
        if isinstance(sys.modules.get(NAME), _NoDynamo):
            del sys.modules[NAME], torch._dynamo
        torch.set_num_threads(threads)
