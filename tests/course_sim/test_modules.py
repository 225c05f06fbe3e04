"""The user's own modules are each rank's own, as they are under ``run``; libraries are shared."""

from __future__ import annotations

import importlib
import sys
import textwrap
import warnings
from functools import partial

import pytest
import torch
import torch.distributed as dist

from course_lib import RankFailed, run, simulate

SIZE = 3
PLAY = partial(simulate, world_size=SIZE)
FILES = {
    "state.py": """
        import enum, threading
        from dataclasses import dataclass
        import torch.distributed as dist

        RANK = None
        LOCK = threading.Lock()

        def setup():
            global RANK
            RANK = dist.get_rank()

        def collect(item, into=[]):
            into.append(item)
            return list(into)

        class Registry:
            entries = []
            only = None

            @classmethod
            def get(cls):
                cls.only = cls.only or cls()
                return cls.only

        class Color(enum.Enum):
            RED = 1

        class Broken(Exception):
            pass

        @dataclass
        class Result:
            rank: int
            color: Color = Color.RED
        """,
    "late.py": """
        import torch.distributed as dist
        HERE = [dist.get_rank()] if dist.is_initialized() else []
        """,
    "once.py": """
        import builtins
        if hasattr(builtins, "course_lib_once"):
            raise RuntimeError("registered twice")
        builtins.course_lib_once = True
        def answer():
            return 42
        """,
    "own/__init__.py": "",
    "own/training.py": """
        import state
        from . import helper
        import torch.distributed as dist

        def note():
            state.setup()

        def train():
            helper.step()
            dist.barrier()
            return state.RANK, helper.made(), isinstance(helper.thing(), Thing)

        class Thing:
            pass
        """,
    "own/helper.py": """
        import state
        from . import training
        MADE = []
        def step():
            training.note()
            MADE.append(state.RANK)
        def made():
            return list(MADE)
        def thing():
            return training.Thing()
        """,
}


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A folder with modules of the user's own, which this process forgets afterwards."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text))
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    import builtins

    vars(builtins).pop("course_lib_once", None)
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in (
            sys.modules[name].__file__ or ""
        ):
            del sys.modules[name]


USED = [(r, [r], [r], r, True) for r in range(SIZE)]
TRAINED = [(r, [r], True) for r in range(SIZE)]
IMPORTED = [[r, "more"] for r in range(SIZE)]


def uses_state():
    import state

    rank = dist.get_rank()
    state.setup()
    state.Registry.entries.append(rank)
    state.Registry.get().rank = rank
    with state.LOCK:
        dist.barrier()
    only = state.Registry.get().rank
    again = importlib.import_module("state") is state is sys.modules["state"]
    return state.RANK, state.collect(rank), state.Registry.entries, only, again


@pytest.mark.slow
def test_under_run_it_is_the_same():
    training = importlib.import_module("own.training")
    play = partial(run, world_size=SIZE, timeout=30)
    assert play(training.train).results == TRAINED
    assert play(uses_state).results == USED
    assert play(imports_late).results == IMPORTED
    assert "late" not in sys.modules


@pytest.mark.parametrize("imported", [True, False], ids=["imported before", "imported late"])
def test_what_a_module_keeps_is_each_ranks_own(imported):
    mine = importlib.import_module("state") if imported else None
    for _ in range(2):
        assert PLAY(uses_state).results == USED
    assert sys.modules.get("state") is mine
    assert mine is None or (mine.RANK is None and mine.Registry.entries == [])


def imports_late():
    import late

    dist.barrier()
    late.HERE.append("more")
    return late.HERE


def test_what_only_ranks_import_is_their_own_and_does_not_stay():
    assert PLAY(imports_late).results == IMPORTED
    assert "late" not in sys.modules


def test_a_function_of_a_module_that_others_import_is_of_the_same_world_as_they():
    training = importlib.import_module("own.training")
    assert PLAY(training.train).results == PLAY(partial(training.train)).results == TRAINED


def returns(result):
    import state

    assert isinstance(result, state.Result) and result.color is state.Color.RED
    return state.Result(dist.get_rank()), state.Result, state.Color.RED, state.setup


def test_arguments_and_results_are_of_the_classes_of_whoever_looks():
    state = importlib.import_module("state")
    for rank, (result, kind, red, function) in enumerate(PLAY(returns, state.Result(7)).results):
        assert type(result) is state.Result is kind and result.rank == rank
        assert result.color is red is state.Color.RED and function is state.setup


def raises():
    import state

    try:
        raise state.Broken("inner")
    except state.Broken:
        raise state.Broken("by rank 0") from None


def test_exceptions_are_of_the_callers_classes():
    state = importlib.import_module("state")
    with pytest.raises(RankFailed, match="Broken: by rank 0") as caught:
        simulate(raises, world_size=2)
    assert isinstance(caught.value.__cause__, state.Broken)
    assert 'raise state.Broken("by rank 0")' in str(caught.value)


def asks_once():
    import once

    return once.answer(), once.__name__


def test_a_module_that_cannot_be_imported_twice_is_shared_and_named_once():
    importlib.import_module("once")
    with pytest.warns(RuntimeWarning, match=r"share the module once, .*registered twice") as seen:
        assert simulate(asks_once, world_size=SIZE).results == [(42, "once")] * SIZE
    assert len([w for w in seen if "share the module" in str(w.message)]) == 1


def test_libraries_are_not_imported_again():
    same = simulate(
        lambda: (id(sys.modules["torch"]), id(importlib.import_module("numpy"))), world_size=2
    ).results
    assert same == [(id(torch), id(sys.modules["numpy"]))] * 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(imports_late, world_size=2)


def many():
    import state

    state.setup()
    for _ in range(5):
        dist.barrier()
    return state.RANK


def test_many_ranks_have_each_their_own():
    importlib.import_module("state")
    assert simulate(many, world_size=64).results == list(range(64))


def test_clean_up_after_a_failure():
    state = importlib.import_module("state")
    path = list(sys.meta_path)
    with pytest.raises(RankFailed):
        simulate(raises, world_size=2)
    assert sys.modules["state"] is state and sys.meta_path == path
