"""What installed packages keep of a rank is each rank's own, as under ``run``."""

from __future__ import annotations

import importlib
import sys
import textwrap
import warnings

import pytest
import torch
import torch.distributed as dist

from course_lib import run, simulate
from course_sim import engine
from course_sim.isolation import packages

SIZE = 3
FILES = {
    # as accelerate does: every object shares the dictionary of its class
    "borg/__init__.py": """
        import torch.distributed as dist

        class State:
            shared = {}

            def __init__(self):
                self.__dict__ = State.shared
                if not self.__dict__:
                    self.rank = dist.get_rank()

        def mine():
            return State().rank
        """,
    # a global that is kept in a module which knows nothing of ranks
    "global_in/__init__.py": "from .setup import mine",
    "global_in/kept.py": "RANK = None",
    "global_in/setup.py": """
        import os
        from . import kept

        def mine():
            if kept.RANK is None:
                kept.RANK = int(os.environ["RANK"])
            return kept.RANK
        """,
    "cached.py": """
        import functools
        import torch.distributed as dist

        @functools.cache
        def mine():
            return dist.get_rank()
        """,
    "group_kept.py": """
        import torch.distributed as dist
        _GROUPS = {}

        def mine():
            if "all" not in _GROUPS:
                _GROUPS["all"] = dist.new_group()
            return dist.get_rank(_GROUPS["all"])
        """,
    # knows nothing of ranks, as hydra
    "one_config.py": """
        import torch

        class Singleton(type):
            made = {}

            def __call__(cls):
                if cls not in cls.made:
                    cls.made[cls] = super().__call__()
                return cls.made[cls]

        class Config(metaclass=Singleton):
            def __init__(self):
                self.number = getattr(torch, "distributed").get_rank()

        def mine():
            return Config().number
        """,
    "copies_all.py": """
        import os
        import torch.distributed as dist
        SETTINGS = {key: value for key, value in dict(os.environ).items() if key == "SETTING"}

        def mine():
            return dist.get_rank()
        """,
    # asks for the rank, and keeps nothing
    "plain.py": """
        import os
        import torch.distributed as dist
        STYLES = {"a": [1, 2], "b": {3}}
        LOADED, REGISTERED = {}, set()

        class Style:
            pass

        def mine():
            LOADED["style"] = Style  # what it defines is the same for all
            REGISTERED.add(Style)
            return dist.get_rank()
        """,
    "at_import.py": """
        import os
        RANK = int(os.environ.get("RANK", -1))

        def mine():
            return RANK
        """,
}
KEEPING = ["borg", "global_in", "cached", "group_kept", "one_config"]


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """A folder as pip fills it, whose packages this process forgets afterwards."""
    folder = tmp_path / "site-packages"
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(folder))
    yield
    for name in list(sys.modules):
        if str(folder) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]
            packages._known.discard(name)
            packages._know_ranks.discard(name.partition(".")[0])
    packages.asked_early.clear()


def asks(name):
    """The rank that a package takes this one for, before and after others had their turn."""
    package = importlib.import_module(name)
    before = package.mine()
    dist.barrier()
    total = torch.tensor(package.mine())
    dist.all_reduce(total)
    return before, package.mine(), total.item()


WANTED = [(r, r, sum(range(SIZE))) for r in range(SIZE)]


@pytest.mark.parametrize("imported", [True, False], ids=["imported before", "imported late"])
@pytest.mark.parametrize("name", KEEPING)
def test_each_rank_is_itself_to_a_package(name, imported):
    if imported:
        importlib.import_module(name)
    for backend in ("gloo", "nccl"):
        assert simulate(asks, name, world_size=SIZE, backend=backend).results == WANTED


@pytest.mark.slow
def test_as_under_run():
    job = run(lambda: [asks(name) for name in KEEPING], world_size=SIZE, timeout=30)
    assert job.results == [[wanted] * len(KEEPING) for wanted in WANTED]


def test_many_ranks_that_run_ahead():
    assert simulate(asks, "borg", world_size=64).results == [(r, r, 2016) for r in range(64)]


def test_the_callers_own_state_stays():
    import borg

    borg.State.shared["rank"] = 7
    simulate(asks, "borg", world_size=SIZE)
    assert borg.State.shared == {"rank": 7}


def test_a_failed_simulation_leaves_nothing_behind():
    import borg

    def fails():
        borg.mine()
        raise ValueError

    with pytest.raises(Exception, match="ValueError"):
        simulate(fails, world_size=SIZE)
    assert borg.State.shared == {}


@pytest.fixture
def made(monkeypatch):
    """As many as there were lives of ranks."""
    lives, live = [], engine.Execution.live
    monkeypatch.setattr(engine.Execution, "live", lambda *_: lives.append(0) or live(*_))
    return lives


def test_packages_that_keep_nothing_are_executed_once(made):
    import plain

    own = len(packages._own)
    assert simulate(asks, "plain", world_size=SIZE).results == WANTED
    assert len(made) == SIZE and len(packages._own) == own and plain.LOADED["style"] is plain.Style
    assert {plain.Style} == plain.REGISTERED
    import borg  # of which it is known from then on

    assert simulate(asks, "borg", world_size=SIZE).results == WANTED
    assert len(made) == 3 * SIZE and borg.State.shared == {}
    simulate(asks, "borg", world_size=SIZE)
    assert len(made) == 4 * SIZE


@pytest.mark.parametrize("name", ["borg", "cached"])
def test_a_script_for_gpus_is_executed_once(name, made):
    """It would find the files of the first time."""

    def ask():
        package = importlib.import_module(name)
        before = package.mine()
        dist.barrier()
        return before, package.mine()

    job = simulate(ask, world_size=SIZE, backend="nccl", cuda=True)
    assert job.results == [(r, r) for r in range(SIZE)]
    assert len(made) == SIZE


def test_who_asks_for_the_rank_while_it_is_imported_is_named():
    with pytest.warns(RuntimeWarning, match="share the module at_import, .*import it before"):
        simulate(asks, "at_import", world_size=SIZE)


def test_who_copies_the_environment_does_not_ask():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert simulate(asks, "copies_all", world_size=SIZE).results == WANTED


def test_a_package_imported_before_is_not_warned_of():
    import at_import

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job = simulate(asks, "at_import", world_size=SIZE)
    assert job.results == [(-1, -1, -3)] * SIZE and at_import.RANK == -1
