"""What functions carry along: the file that they come from, its lines, and what they refer to."""

from __future__ import annotations

import linecache
import types

import cloudpickle
import pytest

from course_lib import Hazard, RankFailed, pickling, run, simulate
from course_lib.user_code import show_lines

# Everything that a cell may define raises in its last line, each in a line of its own.
CELL = """\
import asyncio, functools, traceback
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

    @staticmethod
    def static():
        return 5 / 0

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

async def coroutine():
    return 9 / 0

def comprehension():
    return [10 / n for n in range(1)]

cached = functools.lru_cache(lambda: 11 / 0)
partial = functools.partial(lambda n: 12 / n, 0)
KINDS = [plain, as_lambda, outer, Method(), Method.static, lambda: Method().value, decorated]
KINDS += [lambda: list(generator()), lambda: asyncio.run(coroutine())]
KINDS += [comprehension, cached, partial]

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
# What front ends call their input: ipykernel, IPython, Python, its new prompt, IDLE, others.
NAMES = ["/tmp/ipykernel_1/2.py", "<ipython-input-3-0123>", "<stdin>", "<python-input-3>",
         "<pyshell#3>", "<input>", "<console>", "<string>", "<command-12>", "<doctest a[0]>",
         "<unknown>", "Untitled-1", "a name that nobody has thought of"]  # fmt: skip


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


@pytest.mark.parametrize("engine", [run, simulate])
def test_a_failure_names_its_line(engine):
    space = executed(CELL, "<command-12>")
    with pytest.raises(RankFailed, match=r"<command-12>, line 5:  return 1 / 0"):
        engine(space["plain"], world_size=1)


def test_lines_are_carried_once_for_each_file_and_from_no_file_on_disk():
    space = executed(CELL + "#" * 100_000, "<command-12>")
    assert len(pickling.pack(space["KINDS"])) < 150_000
    assert len(pickling.pack(test_a_failure_names_its_line)) < 10_000


def test_input_that_python_keeps_by_its_code_alone_has_lines(monkeypatch):
    space = executed(CELL, "<python-input-3>")
    lines = linecache.cache.pop("<python-input-3>")[2]
    monkeypatch.setattr(linecache, "_getlines_from_code", lambda _: lines, raising=False)
    with pytest.raises(RankFailed, match=r"<python-input-3>, line 5:  return 1 / 0"):
        run(space["plain"], world_size=1)
