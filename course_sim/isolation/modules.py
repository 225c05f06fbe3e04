"""The user's own modules, which every rank imports for itself as a process would.

    sys.modules     torch, numpy, …      one for all ranks
                    helpers, config, …   swapped when the baton changes hands: each rank's own

A rank that imports such a module runs its code again: globals, classes, caches, locks and open
files in it are that rank's. A module that cannot be imported again, as one in compiled code, or one
that registers itself somewhere, is shared by all ranks, and ``shared`` says why.
"""

from __future__ import annotations

import importlib.abc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from course_lib.pickling import why
from course_lib.user_code import is_user_code
from course_sim.isolation.packages import Loader, Packages
from course_sim.rank import Rank, current

_libraries: set[str] = set()  # names of modules that are known to be none of the user's


def users_modules() -> dict[str, ModuleType]:
    """Those that are loaded now, by name; not what cells or a script define."""
    by_value = {"__main__", "__mp_main__", *cloudpickle.list_registry_pickle_by_value()}
    found = {}
    for name in sys.modules.keys() - _libraries - by_value:
        module = sys.modules.get(name)
        if type(module) is ModuleType and _is_users(module.__spec__):
            found[name] = module
        else:
            _libraries.add(name)
    return found


def _is_users(spec: ModuleSpec | None) -> bool:
    """Whether a module is the user's own, and in Python."""
    if spec is None:
        return False
    if spec.has_location and spec.origin is not None:
        return spec.origin.endswith(".py") and is_user_code(spec.origin)
    folders = spec.submodule_search_locations  # those of a package without a file
    return bool(folders) and all(is_user_code(os.path.join(folder, "")) for folder in folders or ())


def is_imported(module: ModuleType, others: Mapping[str, ModuleType]) -> bool:
    """Whether one of the others has imported the module, or something of it."""
    name = module.__name__
    return any(
        value is module or (isinstance(value, (type, FunctionType)) and value.__module__ == name)
        for other in others.values()
        if other is not module
        for value in vars(other).values()
    )


class Modules(importlib.abc.MetaPathFinder):
    """What each rank has imported of them."""

    def __init__(self, callers: dict[str, ModuleType], packages: Packages) -> None:
        self._packages = packages
        self.main = {"__main__": sys.modules["__main__"]}  # which runpy replaces for a while
        self.callers = callers
        self.shared: dict[str, str] = {}  # by name: why
        self._loaded = set(self.main)  # what ranks have for themselves
        self._specs: dict[str, ModuleSpec | None] = {}
        self._code: dict[str, CodeType] = {}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, none of them has been imported yet."""
        for name in self.callers:
            sys.modules.pop(name, None)
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            for name in self._loaded:
                sys.modules.pop(name, None)
            sys.modules.update(self.callers | self.main)

    def swap(self, before: Rank, rank: Rank) -> None:
        """One rank's modules out, another's in."""
        known = sys.modules
        before.modules = {name: known.pop(name) for name in self._loaded if name in known}
        known.update(rank.modules)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        """Part of the import system: how to import a module, if it is the user's own."""
        if (rank := current()) is None:
            return None
        if name not in self._specs:
            self._specs[name] = self._find_users_spec(name, path)
        spec = self._specs[name]
        if spec is None:
            return None if rank.importing else self._packages.find_spec(rank, name, path)
        self._loaded.add(name)
        loader: Any = Loader(spec.loader, partial(self.run_again, name, spec.loader))
        new = ModuleSpec(name, loader, origin=spec.origin)
        new.submodule_search_locations = spec.submodule_search_locations
        new.has_location = spec.has_location
        return new if spec.has_location else spec  # a folder without __init__.py has no code

    def _find_users_spec(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path)
        if not _is_users(spec) and name in self.callers:  # not where it was, or found otherwise
            spec = self.callers[name].__spec__
        return spec if _is_users(spec) else None

    def run_again(self, name: str, loader: Any, module: ModuleType) -> None:
        """The code of a module, in a new one."""
        try:
            if name not in self._code:
                self._code[name] = loader.get_code(name)
            exec(self._code[name], vars(module))
        except Exception as error:
            if name not in self.callers:
                raise
            self.shared[name] = f"which cannot be imported once for each: {why(error)}"
            self._specs[name] = None
            self._loaded.discard(name)
            sys.modules[name] = self.callers[name]
