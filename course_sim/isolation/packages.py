"""What installed packages keep of a rank, in modules and classes: each rank has its own.

A package is imported once for all ranks, and some keep in it what a process is: accelerate in a
dictionary of a class, Lightning in an attribute of a function, others in a global. Packages whose
source knows torch.distributed or RANK are looked through before an execution, and after it:

    a place        a module, class, function or object, whose attributes may be bound anew;
                   a dict, list, set or deque, whose items may change; a cache that asks for ranks
    has changed    its content is a rank's own: the program is executed once more, and from then on
                   each rank's content is put there when the baton changes hands

So nothing is swapped for packages that keep nothing, and no package is imported again. What they
define (classes, functions, modules) is no content: of a package that is imported bit by bit, or
keeps a registry of its classes, one rank would otherwise lose what another one has imported.
"""

from __future__ import annotations

import builtins
import importlib.abc
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from functools import _lru_cache_wrapper, cache
from importlib.machinery import ModuleSpec, PathFinder
from operator import is_
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, ClassVar

from course_lib.user_code import is_user_code
from course_lib.versions import PACKAGES
from course_sim.rank import Rank, current

# torch has been taken care of; of the others it is known that they ask nobody
_NOT_ASKED = {"torch", "numpy", "sympy", "mpmath", "scipy", "matplotlib"}
_NOT_ASKED |= {*PACKAGES, *sys.stdlib_module_names}
_MARKS = (b"torch.distributed", b'RANK"', b"RANK'")
_ASKS = {"get_rank", "get_node_local_rank", "environ", "getenv", "new_group"}
_DICTS = (dict, defaultdict, OrderedDict)
_ITEMS = (*_DICTS, list, set, deque)
_PASSING = {"__warningregistry__", "__signature__"}  # names that Python itself binds
_BUILTINS = vars(builtins)
_known: set[str] = set()  # modules whose source has been read, or need not be
_know_ranks: set[str] = set()  # packages
_own: dict[int, tuple[Any, set[str]]] = {}  # what executions have changed: a place, and its names
asked_early: dict[str, str] = {}  # packages that ranks have imported and that asked for the rank


class Environ(dict):
    """What lies behind a rank's ``os.environ``, and knows who asks for the rank."""

    def __getitem__(self, key: bytes) -> bytes:
        if key in (b"RANK", b"LOCAL_RANK"):
            note_question()
        return super().__getitem__(key)


def note_question() -> None:
    """Somebody asks for the rank: a package that is being imported keeps what only one is told."""
    if (rank := current()) and rank.importing:
        asked_early[rank.importing] = (
            "which asks for the rank while it is imported: import it before you call simulate()"
        )


def _package(name: Any) -> str:
    return str(name).partition(".")[0]


def look_for_packages() -> list[ModuleType]:
    """The modules that have been imported since the last time, of packages that know ranks."""
    new: Iterable[str] = sys.modules.keys() - _known
    for name in new:
        _known.add(name)
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        asked = _package(name) not in _NOT_ASKED | _know_ranks and file.endswith(".py")
        if asked and not is_user_code(file, name):
            source = Path(file).read_bytes()
            if any(mark in source for mark in _MARKS):
                _know_ranks.add(_package(name))
                _holds_places.cache_clear()
                new = list(sys.modules)
    modules = (sys.modules.get(name) for name in new if _package(name) in _know_ranks)
    return [module for module in modules if isinstance(module, ModuleType)]


@cache
def _holds_places(kind: type) -> bool:
    """Whether objects of a class are places."""
    if issubclass(kind, (ModuleType, type, FunctionType)) or kind is _lru_cache_wrapper:
        return False  # that depends on where they are from
    return kind in (*_ITEMS, SimpleNamespace) or (
        _package(kind.__module__) in _know_ranks and "__dict__" in dir(kind)
    )


def _is_place(value: Any) -> bool:
    if value is _BUILTINS:  # every module has it among its globals, and it is nobody's
        return False
    if isinstance(value, FunctionType):  # one package may leave a note on another one's
        return _package(value.__module__) not in _NOT_ASKED
    if isinstance(value, (type, _lru_cache_wrapper)):
        return _package(value.__module__) in _know_ranks
    return _holds_places(type(value))  # type: ignore[arg-type]


def _is_defined(value: Any) -> bool:
    """Whether a value is what a package defines, and the same for all ranks."""
    known = isinstance(value, (type, FunctionType)) and _package(value.__module__) in _know_ranks
    return known or isinstance(value, ModuleType)


def _content(place: Any) -> Any:
    """What a place holds now: by name, or a list. Of a cache nobody can see more than how much."""
    if isinstance(place, _lru_cache_wrapper):
        asks = not _ASKS.isdisjoint(place.__wrapped__.__code__.co_names)
        return {"answers": asks and place.cache_info().currsize}
    if type(place) in _ITEMS:
        return place
    return vars(place)


def _copy(content: Any) -> Any:
    return list(content) if isinstance(content, (list, set, deque)) else dict(content)


def _values(content: Any) -> Any:
    return list(content if isinstance(content, (list, set, deque)) else content.values())


def _changes(before: Any, now: Any) -> set[str]:
    """The names of what differs; "" for items that have no names."""
    if len(before) == len(now) and all(map(is_, _values(before), _values(now))):
        return set()
    if isinstance(before, list):
        known = set(map(id, before))
        fresh = [value for value in now if id(value) not in known]
        more = len(now) == len(before) + len(fresh) and all(map(_is_defined, fresh))
        return set() if more else {""}
    names = {name for name in before.keys() | now.keys() if before.get(name) is not now.get(name)}
    return {name for name in names - _PASSING if not _is_defined(now.get(name))}


def _put(place: Any, names: set[str], content: Any) -> None:
    """Let a place hold what a rank has put there; what is defined meanwhile, all have."""
    if isinstance(place, _lru_cache_wrapper):
        place.cache_clear()
    elif isinstance(place, (list, set, deque)):
        known = set(map(id, content))
        content += [value for value in filter(_is_defined, place) if id(value) not in known]
        place.clear()
        (place.update if isinstance(place, set) else place.extend)(content)
    elif type(place) in _DICTS:
        defined = {name: value for name, value in place.items() if _is_defined(value)}
        place.clear()
        place.update({**content, **defined})
    else:
        owner = type if isinstance(place, type) else object  # whatever classes make of it
        for name in names:
            if name in content:
                owner.__setattr__(place, name, content[name])
            elif name in vars(place):
                owner.__delattr__(place, name)


class Loader(importlib.abc.Loader):
    """A loader whose modules are executed in another way."""

    def __init__(self, loader: Any, run: Callable[[ModuleType], None]) -> None:
        self._loader, self.exec_module = loader, run  # type: ignore

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class Packages:
    """Beside an execution: what packages hold is swapped with the baton."""

    _held: ClassVar[dict[int, tuple[Any, Any]]] = {}  # every place by number, and what it held
    _bare: ClassVar[dict[int, FunctionType]] = {}  # without attributes yet

    def __init__(self, caller: Rank) -> None:
        self._caller = caller
        self.changed = False  # whether something has, and was not swapped: all of it is wrong
        self._walk([*look_for_packages(), *self._bare.values()])
        for number, (place, before) in list(self._held.items()):
            if number not in _own and _changes(before, _content(place)):
                self._walk([place], again=True)

    def look(self) -> None:
        """Look through what has been imported."""
        self._walk(look_for_packages())

    def find_spec(self, rank: Rank, name: str, path: Any) -> ModuleSpec | None:
        """How a rank imports an installed module for all ranks: what is in it then, is nobody's."""
        spec = PathFinder.find_spec(name, path)
        if spec is None or not (spec.origin or "").endswith(".py"):
            return None
        loader: Any = spec.loader

        def run(module: ModuleType) -> None:
            spec.loader, rank.importing = loader, _package(name)
            try:
                loader.exec_module(module)
            finally:
                rank.importing = ""
                self.look()

        spec.loader = Loader(loader, run)
        return spec

    def _walk(self, left: list[Any], again: bool = False) -> None:
        while left:
            place = left.pop()
            if isinstance(place, FunctionType) and not place.__dict__:
                self._bare[id(place)] = place
            elif again or id(place) not in self._held:
                content = _copy(_content(place))
                self._held[id(place)] = place, content
                left += filter(_is_place, _values(content))
            again = False

    def swap(self, leaving: Rank, following: Rank) -> None:
        """What the one has put there out, what the other one has in."""
        if not _own:
            return
        leaving.packages = {n: _copy(_content(place)) for n, (place, _) in _own.items()}
        for number, (place, names) in _own.items():
            kept = following.packages if number in following.packages else self._caller.packages
            _put(place, names, kept[number])

    def restore(self) -> None:
        """Let packages hold what they held before, and know what has to be swapped."""
        given: Any = {n: (place, {}) for n, place in self._bare.items() if place.__dict__}
        for number, (place, before) in (given | self._held).items():
            names = _changes(before, _content(place))
            known = _own.get(number, (place, set()))[1]
            if names - known:
                self.changed = True
                _own[number] = place, names | known
                _put(place, names, before)
