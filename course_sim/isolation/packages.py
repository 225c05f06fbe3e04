"""What installed packages keep of a rank, in modules and classes: each rank has its own.

A package is imported once for all ranks, and some packages keep in it what a process is: accelerate
in a dictionary of a class, Lightning in an attribute of a function, others in a global. Packages
whose source knows torch.distributed or RANK are looked through before an execution and after it:

    a holder        a module, class, function or object, whose attributes may be bound anew;
                   a dict, list, set or deque, whose items may change; a cache that asks for ranks
    its content    the attributes or items that it has
    has changed    the content is a rank's own: the program is executed once more, and from then on
                   each rank's content is put there when the baton changes hands

So nothing is swapped for packages that keep nothing, and no package is imported again. What a
package defines (classes, functions, modules) is no content: of a package that is imported bit by
bit, or keeps a registry of its classes, one rank would otherwise lose what another has imported.
"""

from __future__ import annotations

import builtins
import importlib.abc
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import _lru_cache_wrapper
from importlib.machinery import ModuleSpec, PathFinder
from operator import is_
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from course_lib.user_code import is_user_code
from course_lib.versions import PACKAGES
from course_sim.rank import Rank, current

# torch is dealt with elsewhere (private.py, compat.py); the others are known not to ask for ranks
_NOT_ASKED = {"torch", "numpy", "sympy", "mpmath", "scipy", "matplotlib"}
_NOT_ASKED |= {*PACKAGES, *sys.stdlib_module_names}
# A source with one of them knows ranks, or keeps what there is to be one of in a process.
_MARKS = (b"torch.distributed", b'RANK"', b"RANK'", b"class Singleton")
_ASKS = {"get_rank", "get_node_local_rank", "environ", "getenv", "new_group"}
_DICTS = (dict, defaultdict, OrderedDict)
_LISTS = (list, set, deque)
_PASSING = {"__warningregistry__", "__signature__"}  # names that Python itself binds
_BUILTINS = vars(builtins)
LOOKS = 3  # how many of a script's first handovers are looked at; each takes a tenth of a second

# These live as long as the process: what one execution has learned, the next one uses.
_known: set[str] = set()  # modules whose source has been read, or need not be
_know_ranks: set[str] = set()  # packages
_held: dict[int, tuple[Any, Any]] = {}  # by its id, every holder and what it held
_own: dict[int, set[str]] = {}  # by the holder's id, the names that executions have changed
asked_early: dict[str, str] = {}  # packages that ranks have imported and that asked for the rank


class Environ(dict):
    """The mapping behind a rank's ``os.environ``; it notes who asks for the rank, and not who
    copies all of it.
    """

    _copied = 0  # how many of the next questions are those of a copy

    def __iter__(self) -> Iterator[bytes]:
        self._copied = len(self)
        return super().__iter__()

    def __getitem__(self, key: bytes) -> bytes:
        self._copied -= 1
        if key in (b"RANK", b"LOCAL_RANK") and self._copied < 0:
            note_question()
        return super().__getitem__(key)


def note_question() -> None:
    """Somebody asks for the rank. A package that does so while a rank imports it keeps the answer,
    which is that rank's alone.
    """
    if (rank := current()) and rank.importing not in ("", "torch", "functorch"):
        asked_early[rank.importing] = (
            "which asks for the rank while it is imported: import it before you call simulate()"
        )


def _package(name: Any) -> str:
    return str(name).partition(".")[0]


def _find_new_modules() -> list[ModuleType]:
    """The modules that were imported since the last time, of packages that know ranks."""
    new: Iterable[str] = sys.modules.keys() - _known
    for name in new:
        _known.add(name)
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        asked = _package(name) not in _NOT_ASKED | _know_ranks and file.endswith(".py")
        if asked and not is_user_code(file, name):
            source = Path(file).read_bytes()
            if any(mark in source for mark in _MARKS):
                _know_ranks.add(_package(name))
                new = list(sys.modules)  # some of the package may have been passed over
    modules = (sys.modules.get(name) for name in new if _package(name) in _know_ranks)
    return [module for module in modules if isinstance(module, ModuleType)]


def _is_holder(value: Any) -> bool:
    """Whether a value that a holder holds is a holder itself. Modules are found otherwise."""
    if isinstance(value, ModuleType):
        return False
    if isinstance(value, FunctionType):  # one package may leave a note on another one's
        return _package(value.__module__) not in _NOT_ASKED
    kind = type(value)
    if kind in (*_DICTS, *_LISTS, SimpleNamespace):
        return value is not _BUILTINS  # every module has it among its globals
    maker = value if isinstance(value, (type, _lru_cache_wrapper)) else kind
    return _package(maker.__module__) in _know_ranks and bool(kind.__dictoffset__)


def _is_defined(value: Any) -> bool:
    """Whether a value is what a package defines, and the same for all ranks."""
    known = isinstance(value, (type, FunctionType)) and _package(value.__module__) in _know_ranks
    return known or isinstance(value, ModuleType)


def _content(holder: Any) -> Any:
    """A copy of what a holder holds now: a list, or a dict by name. A cache shows no more than how
    many answers it has.
    """
    if isinstance(holder, _lru_cache_wrapper):
        asks = not _ASKS.isdisjoint(holder.__wrapped__.__code__.co_names)
        return {"answers": asks and holder.cache_info().currsize}
    if type(holder) in _LISTS:
        return list(holder)
    return dict(holder if type(holder) in _DICTS else vars(holder))


def _values(content: Any) -> Any:
    return content if isinstance(content, list) else list(content.values())


def _find_changes(before: Any, now: Any) -> set[str]:
    """The names of what differs between two contents; "" for items that have no names."""
    if len(before) == len(now) and all(map(is_, _values(before), _values(now))):
        return set()
    if isinstance(before, list):
        known = set(map(id, before))
        fresh = [value for value in now if id(value) not in known]
        more = len(now) == len(before) + len(fresh) and all(map(_is_defined, fresh))
        return set() if more else {""}
    names = {name for name in before.keys() | now.keys() if before.get(name) is not now.get(name)}
    return {name for name in names - _PASSING if not _is_defined(now.get(name))}


def _put(holder: Any, names: set[str], content: Any) -> None:
    """Let a holder hold a rank's content under these names, and what was defined meanwhile."""
    if isinstance(holder, _lru_cache_wrapper):
        holder.cache_clear()
    elif type(holder) in _LISTS:
        known = set(map(id, content))
        content += [value for value in filter(_is_defined, holder) if id(value) not in known]
        holder.clear()
        (holder.update if isinstance(holder, set) else holder.extend)(content)
    elif type(holder) in _DICTS:
        defined = {name: value for name, value in holder.items() if _is_defined(value)}
        holder.clear()
        holder.update({**content, **defined})
    else:
        owner = type if isinstance(holder, type) else object  # whatever classes make of it
        for name in names:
            if name in content:
                owner.__setattr__(holder, name, content[name])
            elif name in vars(holder):
                owner.__delattr__(holder, name)


class Loader(importlib.abc.Loader):
    """Another loader, except that ``run`` executes its modules."""

    def __init__(self, loader: Any, run: Callable[[ModuleType], None]) -> None:
        self._loader, self.exec_module = loader, run  # type: ignore

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _walk(left: list[Any]) -> None:
    """Note what these holders hold, and what the holders in them hold."""
    while left:
        holder = left.pop()
        if id(holder) not in _held:
            content = _content(holder)
            _held[id(holder)] = holder, content
            left += filter(_is_holder, _values(content))


class Packages:
    """Beside an execution: what packages hold is swapped with the baton."""

    def __init__(self, caller: Rank) -> None:
        self._caller = caller
        self._looks: Counter[int] = Counter()  # how many times each rank has been looked at
        self.changed = False  # whether something has, and was not swapped: all of it is wrong
        _walk(_find_new_modules())
        for number, (holder, before) in list(_held.items()):
            if number not in _own and _find_changes(before, _content(holder)):
                del _held[number]
                _walk([holder])

    def find_spec(self, rank: Rank, name: str, path: Any) -> ModuleSpec | None:
        """How a rank imports an installed module, for all ranks. What the module holds right after
        that is nobody's own.
        """
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
                _walk(_find_new_modules())

        spec.loader = Loader(loader, run)
        return spec

    def swap(self, leaving: Rank, following: Rank) -> None:
        """Keep the content that the one leaves, and put the other one's in its place."""
        if leaving.says_cuda and self._looks[leaving.number] < LOOKS:
            self._looks[leaving.number] += 1
            self._learn()
        if not _own:
            return
        leaving.packages = {number: _content(_held[number][0]) for number in _own}
        for number, names in _own.items():
            kept = following.packages if number in following.packages else self._caller.packages
            _put(_held[number][0], names, kept[number])

    def _learn(self) -> None:
        """What the rank that leaves has changed is its own from now on. A script writes files, so
        that it had better not be executed once more.
        """
        for number, (holder, before) in _held.items():
            names = _find_changes(before, _content(holder)).difference(_own.get(number, ()))
            if names:
                _own[number] = names.union(_own.get(number, ()))
                self._caller.packages[number] = before

    def restore(self) -> None:
        """Let packages hold what they held before, and learn what has to be swapped."""
        for number, (holder, before) in _held.items():
            names = _find_changes(before, _content(holder))
            if names.difference(_own.get(number, ())):
                self.changed = True
                _own[number] = names.union(_own.get(number, ()))
                _put(holder, _own[number], before)
