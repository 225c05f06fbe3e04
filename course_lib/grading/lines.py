"""Lines of an answer that ran elsewhere: frames that claim to stand there, and their text.

The simulator notes whose line a call comes from by looking at frames. The judge makes such frames
for a call that came over the wire: ``call(what, *args)`` in a function that says to be that line.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch.distributed as dist


def plainly(what: Callable, *args: Any, **more: Any) -> Any:
    return what(*args, **more)


_template = lambda call, *args, **more: call(*args, **more)  # noqa: E731  # on one line: its first


def standing_at(file: str, number: int, name: str, /) -> Callable:
    code: CodeType = _template.__code__.replace(
        co_filename=file, co_firstlineno=number, co_name=name, co_qualname=name
    )
    return FunctionType(code, {})


CARRYING = standing_at(dist.distributed_c10d.__file__, 1, "broadcast_object_list")


def closed_over(outer: Callable, inner: Callable) -> Callable:
    """``outer`` calls ``inner``, which calls."""
    return lambda *args, **more: outer(inner, *args, **more)


def closing(outer: Callable, call: Callable) -> Callable:
    return lambda: outer(call)
