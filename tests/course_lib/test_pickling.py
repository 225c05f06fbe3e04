"""What functions carry along: the file that they come from, its lines, and what they refer to."""

from __future__ import annotations

import importlib
import linecache
import sys
import types
from functools import partial

import cloudpickle
import pytest
import torch
import torch.distributed as dist

from course_lib import CourseError, Hazard, pickling, run, simulate, user_code
from course_lib.user_code import show_lines

# What a cell may define raises in its last line, each in a line of its own.
CELL = """\
import functools, traceback
import torch, torch.distributed as dist

def plain():
    return 1 / 0

as_lambda = lambda: 2 / 0

def outer():
    def nested():
        return 3 / 0
    return nested()

class Method:
    def __call__(self):
        return 4 / 0

    @property
    def value(self):
        return 6 / 0

def decorator(function):
    @functools.wraps(function)
    def wrapper():
        return function()
    return wrapper

@decorator
def decorated():
    return 7 / 0

def generator():
    yield 8 / 0

partial = functools.partial(lambda n: 12 / n, 0)
KINDS = [plain, as_lambda, outer, Method(), lambda: Method().value, decorated]
KINDS += [lambda: list(generator()), partial]

def where_they_fail():
    lines = []
    for function in KINDS:
        try:
            function()
        except ZeroDivisionError as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            lines.append((frame.filename, frame.lineno, frame.line))
    return lines

def never_waits():
    dist.all_reduce(torch.ones(1), async_op=True)
"""
FAULTY = [(n, line) for n, line in enumerate(CELL.splitlines(), 1) if " / " in line]
# What decorators of torch's and of Python's make of functions in a cell, and what each comes to.
DECORATED = """\
import contextlib, functools
import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return 2 * gradient

def gradient_of_twice():
    x = torch.ones(1, requires_grad=True)
    Twice.apply(x).backward()
    return x.grad.item()

@torch.no_grad()
def without_gradients():
    return torch.is_grad_enabled()

@functools.wraps(dist.all_reduce)
def sum_up(x):
    dist.all_reduce(x)
    return x

@contextlib.contextmanager
def managed():
    yield 3

def inside():
    with managed() as value:
        return value

class Lazy:
    @functools.cached_property
    def value(self):
        return 5

@torch.compile(backend="eager")
def compiled(x):
    return x + 1

EXPECTED = [
    (gradient_of_twice, 2.0),
    (without_gradients, False),
    (lambda: sum_up(torch.ones(1)).item(), 1.0),
    (inside, 3),
    (lambda: Lazy().value, 5),
    (lambda: compiled(torch.ones(1)).item(), 2.0),
]
"""
# What front ends call their input. Others: test_user_code.
NAMES = ["/tmp/ipykernel_1/2.py", "a name that nobody has thought of"]


@pytest.fixture(autouse=True)
def forgetful(monkeypatch):
    """A cloudpickle that forgets the names of files, as version 3.1.3 does."""
    table = cloudpickle.Pickler.dispatch_table
    reduce = table[types.CodeType]

    def forget(code):
        return reduce(code.replace(co_filename="<dynamic-code>"))

    monkeypatch.setitem(table, types.CodeType, forget)


def executed(source: str, name: str) -> dict:
    show_lines(name, source)
    space = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), space)
    return space


@pytest.fixture(autouse=True)
def keep_lines(monkeypatch):
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))


@pytest.mark.parametrize("engine", [run, simulate])
def test_whatever_a_cell_defines_knows_its_file_and_its_lines_in_a_rank(engine):
    space = executed(CELL, "<command-12>")
    (found,) = engine(space["where_they_fail"], world_size=1).results
    assert found == [("<command-12>", number, line.strip()) for number, line in FAULTY]


@pytest.mark.parametrize("engine", [run, simulate])
@pytest.mark.parametrize("name", NAMES)
def test_a_work_that_nobody_waits_for_is_told_whatever_the_input_is_called(engine, name):
    space = executed(CELL, name)
    with pytest.raises(Hazard) as caught:
        engine(space["never_waits"], world_size=1)
    (event,) = caught.value.run.trace.events
    assert (event.line.number, event.line.function) == (len(CELL.splitlines()), "never_waits")
    assert event.line.source == "dist.all_reduce(torch.ones(1), async_op=True)"


def test_lines_are_carried_once_for_each_file_and_from_no_file_on_disk():
    space = executed(CELL + "#" * 100_000, "<command-12>")
    assert len(pickling.pack(space["KINDS"])) < 150_000
    assert len(pickling.pack(executed)) < 10_000


@pytest.mark.parametrize("engine", [run, simulate])
def test_a_package_that_was_installed_is_the_readers_where_ranks_are_given_its_function(
    engine, tmp_path, monkeypatch
):
    folder = tmp_path / "site-packages" / "theirs"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("import torch\nimport torch.distributed as dist\n")
    lines = CELL.splitlines()[-2:]
    (folder / "part.py").write_text("\n".join(["from theirs import *", *lines]))
    monkeypatch.syspath_prepend(folder.parent)
    part = importlib.import_module("theirs.part")
    with pytest.raises(Hazard) as caught:
        engine(partial(part.never_waits), world_size=1)
    assert "part.py, line 3:  dist.all_reduce" in str(caught.value)
    engine(dist.barrier, world_size=1)
    assert not user_code.is_user_code(dist.__file__)
    assert not user_code.is_user_code(part.__file__)


def test_lines_that_nobody_has_kept_are_told_once(capsys):
    for name in ("<lost>", "<lost>", "<kept>"):
        source = "def calls(): dist.barrier()"
        space = {"__name__": "__main__", "dist": dist}
        exec(compile(source, name, "exec"), space)
        if name == "<kept>":
            show_lines(name, source)
        (event,) = simulate(space["calls"], world_size=1).trace.events
        assert event.line == f"{name}, line 1" + (f":  {source}" if name == "<kept>" else "")
    assert capsys.readouterr().err.splitlines() == [
        "course_lib: nobody keeps the text of <lost>, so its lines are named by their numbers "
        "alone; write the code into a file or a notebook to see them"
    ]


def test_what_is_typed_at_a_prompt_again_is_shown_as_it_is_now():
    for source in ("def calls(): dist.barrier()", "def calls(): dist.barrier()  # again"):
        show_lines("<console>", source)
        space = {"__name__": "__main__", "dist": dist}
        exec(compile(source, "<console>", "exec"), space)
        (event,) = run(space["calls"], world_size=1).trace.events
        assert event.line.source == source


@pytest.mark.slow
@pytest.mark.parametrize("engine", [run, simulate])
def test_what_decorators_have_made_travels(engine):
    for function, expected in executed(DECORATED, "<command-12>")["EXPECTED"]:
        assert engine(function, world_size=1).results == [expected]


def test_what_cannot_travel_is_named():
    space = executed(CELL, "<command-12>")
    space["traced"] = torch.jit.trace(torch.relu, torch.ones(1))
    exec("def uses_it(): return traced(torch.ones(1))", space)
    with pytest.raises(CourseError, match=r"^traced \(ScriptFunction\) cannot be sent"):
        run(space["uses_it"], world_size=1)


@pytest.mark.parametrize("engine", [run, simulate])
def test_a_wrapper_of_the_readers_own_takes_its_globals_along(engine, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import functools\n"
        "state = 1\n"
        "def wrap(function):\n"
        "    @functools.wraps(function)\n"
        "    def wrapper():\n"
        "        global state\n"
        "        state += function()\n"
        "        return state\n"
        "    return wrapper\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("mine", None)
    mine = importlib.import_module("mine")
    mine.state = 10
    function = executed("def one(): return 1", "<command-12>")["one"]
    assert engine(mine.wrap(function), world_size=2).results == [11, 11]
