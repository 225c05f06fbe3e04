"""How functions, arguments and results travel between the notebook and its ranks.

cloudpickle carries what the standard pickle will not: functions, closures and classes that were
defined in a cell, by value. On top of it, tensors travel light: from a GPU they come back on the
CPU, and a view brings its own elements and not the whole storage that it looks into.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import io
import linecache
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import torch

from course_lib.errors import CourseError
from course_lib.user_code import claim, find_source, is_user_code, say_if_lines_are_lost, show_lines

_Cached = type(functools.lru_cache(int))
_CPlusPlus = type(torch.distributed.ReduceOp.RedOpType)  # what classes of pybind11 are made by
LARGEST = 2_000_000_000  # bytes that may be sent at once


class TooLarge(Exception):
    """The pickle has more bytes than allowed: so many, or more."""

    def __init__(self, nbytes: int, most: int) -> None:
        super().__init__(f"{nbytes / 1e6:,.0f} MB or more, and {most / 1e6:,.0f} MB are allowed")


class CannotTravel(Exception):
    """One part of a call cannot be unpickled: ``name`` is the part, ``why`` the reason."""

    def __init__(self, name: str, error: Exception) -> None:
        self.name, self.why = name, why(error)
        super().__init__(f"{name}: {self.why}")


class Pickler(cloudpickle.Pickler):
    """Carries what was defined in a cell, and in which cell. It leaves tensors to torch."""

    def __init__(self) -> None:
        self.buffer = io.BytesIO()
        super().__init__(self.buffer, protocol=5)
        self._sources: dict[str, str] = {}  # by file, each carried once

    def reducer_override(self, obj: Any) -> Any:
        """Called by pickle for each object; NotImplemented leaves it to the usual way."""
        if isinstance(obj, types.CodeType):
            file = obj.co_filename
            if file not in self._sources:
                self._sources[file] = find_source(obj)
            make, parts = self.dispatch_table[types.CodeType](obj)
            return _make_code, (make, parts, file, self._sources[file])
        if isinstance(obj, types.ModuleType) and type(obj) is not types.ModuleType:
            return importlib.import_module, (obj.__name__,)  # torch.ops, whose class forbids more
        if type(obj) is _CPlusPlus and _is_in_its_module(obj):
            return getattr, (sys.modules[obj.__module__], obj.__name__)
        if type(type(obj)) is _CPlusPlus and hasattr(obj, "__members__"):
            return type(obj), (int(obj),)  # an enum, which would forget its value
        if isinstance(obj, _Cached) and not _can_be_imported(obj):
            return _make_cached, (obj.__wrapped__, obj.cache_parameters())
        if type(obj) is functools.cached_property:  # before Python 3.12 it holds a lock
            return functools.cached_property, (obj.func,), {"attrname": obj.attrname}
        if type(obj) is weakref.WeakKeyDictionary:  # functools.singledispatch has one
            return weakref.WeakKeyDictionary, (dict(obj),)
        reduced = super().reducer_override(obj)
        if isinstance(obj, types.FunctionType) and reduced is not NotImplemented:
            return _reduce_at_home(obj, reduced)
        return reduced


class _LightPickler(Pickler):
    """Carries up to ``most`` bytes, and tensors without what lies around them in memory."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = self._most = most

    def dump(self, value: Any) -> None:
        super().dump(value)
        if self.buffer.tell() > self._most:
            raise TooLarge(self.buffer.tell(), self._most)

    def reducer_override(self, obj: Any) -> Any:
        """Lighten tensors, and stop before too many bytes of them have been copied."""
        if isinstance(obj, torch.Tensor) and type(obj) in (torch.Tensor, torch.nn.Parameter):
            self._left -= obj.nbytes  # raises before gigabytes have been copied
            if self._left < 0:
                raise TooLarge(self._most - self._left, self._most)
            light = _lighten(obj)
            if light is not obj:
                return light.__reduce_ex__(4)
        return super().reducer_override(obj)


def _reduce_at_home(function: types.FunctionType, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """How a function of a library travels by value, but with its globals by reference: the wrapper
    that a decorator has made would drag along all of its module.
    """
    name = function.__globals__.get("__name__", "")
    home = sys.modules.get(name)
    file = getattr(home, "__file__", None)
    if file is None or is_user_code(file) or _goes_by_value(name):
        return reduced
    if vars(home) is not function.__globals__:
        return reduced
    _, (code, _, _, _, closure), (state, slots), *rest = reduced
    return _make_function, (code, name, closure), (state, slots | {"__globals__": {}}), *rest


def _make_function(code: types.CodeType, module: str, closure: tuple[Any, ...] | None) -> Callable:
    return types.FunctionType(code, vars(importlib.import_module(module)), None, None, closure)


def _goes_by_value(module: str) -> bool:
    """Whether what is in a module travels by value: no rank could import it, or the user has asked
    for it.
    """
    names = {"__main__", *cloudpickle.list_registry_pickle_by_value()}
    return any(module == name or module.startswith(name + ".") for name in names)


def _make_code(make: Callable, parts: tuple[Any, ...], file: str, source: str) -> types.CodeType:
    """Code that knows its file, which some versions of cloudpickle forget."""
    if source and file not in linecache.cache:
        show_lines(file, source)
    return make(*parts).replace(co_filename=file)


def _can_be_imported(function: Any) -> bool:
    known = getattr(sys.modules.get(function.__module__), function.__qualname__, None)
    return known is function and not _goes_by_value(function.__module__)


def _is_in_its_module(obj: Any) -> bool:
    """Whether a class is in its module under its ``__name__``. pickle looks for ``__qualname__``,
    which is ``_SDPBackend`` for ``torch.nn.attention.SDPBackend``.
    """
    return getattr(sys.modules.get(obj.__module__), obj.__name__, None) is obj


def _make_cached(function: Any, parameters: dict[str, Any]) -> Any:
    """The same function under an empty ``functools.lru_cache``."""
    return functools.lru_cache(**parameters)(function)


def _lighten(tensor: torch.Tensor) -> torch.Tensor:
    """The same values on the CPU, in a storage of their own size."""
    if tensor.layout != torch.strided:
        return tensor
    light = tensor.detach().cpu()
    if light.untyped_storage().nbytes() > light.nbytes:
        light = light.clone()
    if light.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
        return tensor
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(light, tensor.requires_grad)
    return light.requires_grad_(tensor.requires_grad)


def pack(value: Any, most: int = LARGEST) -> bytes:
    """Pickle anything; raises TooLarge past ``most`` bytes, and what pickle raises."""
    pickler = _LightPickler(most)
    pickler.dump(value)
    return pickler.buffer.getvalue()


def pack_call(fn: Callable, args: Sequence[Any]) -> bytes:
    """Pickle a function and its arguments, one after the other, so that the one that fails can be
    named; what they share is carried once. Raises CourseError that names what cannot travel.
    """
    if not callable(fn):
        raise CourseError(
            f"ranks need a function, and were given {type(fn).__name__}: write f, not f()"
        )
    _check_signature(fn, args)
    claim(fn)
    names = ["the function"]
    names += [f"argument {at} ({type(arg).__name__})" for at, arg in enumerate(args)]
    pickler = _LightPickler(LARGEST)
    pickler.dump(names)
    for name, part in zip(names, (fn, *args), strict=True):
        try:
            pickler.dump(part)
        except Exception as error:
            culprit = _find_culprit(fn) if name == "the function" else None
            name, reason = culprit or (name, why(error))
            raise CourseError(
                f"{name} cannot be sent to the ranks ({reason}): "
                "create it inside the function, where each rank makes its own"
            ) from None
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is not None:
        say_if_lines_are_lost(code.co_filename)
    return pickler.buffer.getvalue()


def _check_signature(fn: Callable, args: Sequence[Any]) -> None:
    """Raise CourseError if a function cannot be called with these arguments."""
    if inspect.iscoroutinefunction(fn):
        raise CourseError(
            f"{fn.__name__} is an async def: give the ranks a function that calls "
            f"asyncio.run({fn.__name__}(…))"
        )
    try:
        inspect.signature(fn).bind(*args)
    except TypeError as error:
        name = getattr(fn, "__name__", "the function")
        raise CourseError(
            f"{name}() cannot be called with {len(args)} arguments: {error}. "
            "(fn, a, b) calls fn(a, b) in each rank, where dist.get_rank() tells which it is"
        ) from None
    except ValueError:
        return  # a builtin that tells nobody its signature


def _find_culprit(fn: Callable) -> tuple[str, str] | None:
    """Which of the variables that a function uses cannot travel, and why."""
    used = inspect.getclosurevars(fn) if inspect.isfunction(fn) else None
    for name, value in {**used.nonlocals, **used.globals}.items() if used else ():
        try:
            pack(value, LARGEST)
        except Exception as error:
            return f"{name} ({type(value).__name__})", why(error)
    return None


def unpack_call(pickled: bytes) -> list[Any]:
    """The function and its arguments. Raises CannotTravel."""
    unpickler = pickle.Unpickler(io.BytesIO(pickled))
    parts = []
    for name in unpickler.load():
        try:
            parts.append(unpickler.load())
        except Exception as error:
            raise CannotTravel(name, error) from None
    claim(parts[0])
    return parts


def why(error: Exception) -> str:
    """An exception in one short line."""
    line = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {line[:200]}"
