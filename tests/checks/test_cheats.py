"""What passes for an answer and is none: each looks right to a check that can be fooled."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib.checks.checking import verdict_on
from course_lib.checks.exercise import find
from course_lib.checks.in_rank import Answer
from course_lib.checks.verdict import Verdict

pytestmark = pytest.mark.slow

RIGHT_RING = """
def right_ring(tensor):
    rank, world = dist.get_rank(), dist.get_world_size()
    flat = tensor.reshape(-1).clone()
    chunks = list(flat.tensor_split(world))
    for step in range(2 * (world - 1)):
        out, into = chunks[(rank - step) % world], chunks[(rank - step - 1) % world]
        inbox = torch.empty_like(into)
        going = dist.isend(out, (rank + 1) % world)
        dist.recv(inbox, (rank - 1) % world)
        going.wait()
        into.copy_(into + inbox if step < world - 1 else inbox)
    tensor.copy_(flat.reshape(tensor.shape))
"""


def verdict(exercise: str, source: str) -> Verdict:
    return verdict_on(find(exercise), Answer(exercise, source=source, file="cheat.py"))


def test_the_ring_of_these_tests_is_right() -> None:
    got = verdict("ring_all_reduce", RIGHT_RING + "\nring_all_reduce = right_ring\n")
    assert got.passed, str(got)


@pytest.mark.parametrize(
    ("exercise", "call"),
    [
        ("ring_all_reduce", "from torch.distributed import _functional_collectives as f\n\n\n"
         "def ring_all_reduce(tensor):\n"
         "    tensor.copy_(f.all_reduce(tensor.contiguous(), 'sum', dist.group.WORLD))"),
        ("ring_all_reduce", "def ring_all_reduce(tensor):\n"
         "    total = tensor.contiguous()\n    dist.group.WORLD.allreduce([total]).wait()\n"
         "    tensor.copy_(total)"),
        ("ring_all_reduce", "def ring_all_reduce(tensor):\n"
         "    ops, name = torch.ops._c10d_functional, dist.group.WORLD.group_name\n"
         "    tensor.copy_(ops.wait_tensor(ops.all_reduce(tensor.contiguous(), 'sum', name)))"),
        ("in_order", "def in_order(work):\n    for turn in range(dist.get_world_size()):\n"
         "        if turn == dist.get_rank():\n            work()\n"
         "        dist.group.WORLD.barrier().wait()"),
    ],
)  # fmt: skip
def test_calling_a_collective(exercise: str, call: str) -> None:
    got = verdict(exercise, call)
    assert not got.passed
    assert got.diagnosis in ("04.collective", "01.collective"), str(got)


POST = """
import time

def ring_all_reduce(tensor):
    rank, world = dist.get_rank(), dist.get_world_size()
    post(rank, tensor)
    for _ in range(200):
        if all(look(r) is not None for r in range(world)):
            break
        time.sleep(0.01)
    tensor.copy_(sum(look(r) for r in range(world)))
"""
GLOBALS = (
    "import torch.serialization as shelf\nshelf.box = {}\n"
    + POST
    + """
def post(rank, tensor):
    shelf.box[rank] = tensor.clone()

def look(rank):
    return shelf.box.get(rank)
"""
)
FILES = (
    "import os\n"
    + POST
    + """
def path(rank):
    return f"FOLDER/{rank}-{dist.get_world_size()}"

def post(rank, tensor):
    torch.save(tensor, path(rank))

def look(rank):
    return torch.load(path(rank)) if os.path.exists(path(rank)) else None
"""
)
SHARED = (
    POST
    + """
class ring:
    memory = torch.zeros(8, 4096).share_memory_()
    there = torch.zeros(8, dtype=torch.int64).share_memory_()

def post(rank, tensor):
    ring.memory[rank, : tensor.numel()] = tensor.reshape(-1)
    ring.there[rank] = tensor.numel() + 1

def look(rank):
    n = int(ring.there[rank]) - 1
    return ring.memory[rank, :n] if n >= 0 else None
"""
)
STORE = (
    "import pickle\nfrom torch.distributed import distributed_c10d\n"
    + POST
    + """
def post(rank, tensor):
    store = distributed_c10d._get_default_store()
    store.set(str(rank), pickle.dumps(tensor.clone()))

def look(rank):
    store = distributed_c10d._get_default_store()
    return pickle.loads(store.get(str(rank))) if store.check([str(rank)]) else None
"""
)


@pytest.mark.parametrize(
    "source", [GLOBALS, FILES, SHARED, STORE], ids=["globals", "files", "shared memory", "store"]
)
def test_passing_data_beside_the_messages(source: str, tmp_path: Path) -> None:
    got = verdict("ring_all_reduce", source.replace("FOLDER", str(tmp_path)))
    assert not got.passed, str(got)
    assert got.points < 100


NOISE = """
def meet(noise, partner):
    going = dist.isend(noise, partner)
    dist.recv(noise.clone(), partner)
    going.wait()

def exchange(mine, partner):
    post(dist.get_rank(), mine)
    meet(torch.zeros_like(mine), partner)
    answer = look(partner).clone()
    meet(torch.zeros_like(mine), partner)
    return answer
"""


def test_messages_of_the_right_size_with_nothing_in_them(tmp_path: Path) -> None:
    """Whatever the messages carry, the answer is right: so they do not carry it."""
    there = FILES.replace(POST, "").replace("FOLDER", str(tmp_path))
    got = verdict("exchange", there + NOISE)
    assert not got.levels["core"].passed, str(got)
    assert got.diagnosis == "01.beside-messages", str(got)


def test_a_swap_through_a_file_with_no_message() -> None:
    source = FILES.replace("ring_all_reduce(tensor)", "exchange(mine, partner)").replace(
        "post(rank, tensor)\n    for", "post(rank, mine)\n    for").replace(
        "tensor.copy_(sum(look(r) for r in range(world)))", "return look(partner).clone()"
    )  # fmt: skip
    got = verdict("exchange", source)
    assert got.diagnosis in ("01.no-message", "01.values-differ", "01.raises"), str(got)


@pytest.mark.parametrize("known", ["tensor.numel() < 16", "dist.get_world_size() < 5"])
def test_special_casing_the_sizes_that_are_known(known: str) -> None:
    source = (
        RIGHT_RING
        + f"""
def ring_all_reduce(tensor):
    if {known}:
        right_ring(tensor)
"""
    )
    got = verdict("ring_all_reduce", source)
    assert not got.levels["core"].passed, str(got)


def test_the_sizes_that_are_drawn_change_with_the_answer() -> None:
    def lengths(source: str) -> set[int]:
        got = verdict("ring_all_reduce", source)
        return {p.case.length for p in got.levels["core"].plays}

    one = lengths("def ring_all_reduce(tensor):\n    pass\n")
    assert one == lengths("def ring_all_reduce(tensor):\n    pass\n")
    assert one != lengths("def ring_all_reduce(tensor):\n    return\n")


def test_catching_what_the_check_raises() -> None:
    source = """
def exchange(mine, partner):
    inbox = torch.empty_like(mine)
    try:
        dist.send(mine, partner)
        dist.recv(inbox, partner)
    except BaseException:
        pass
    return inbox
"""
    got = verdict("exchange", source)
    assert got.diagnosis == "01.send-first", str(got)


PATCHES = {
    "equality": "torch.equal = torch.allclose = lambda *a, **k: True\n"
                "    torch.Tensor.__eq__ = lambda *a: torch.ones(1, dtype=torch.bool)",
    "judge": "import course_lib.checks.judge as j\n    j.judge = lambda *a: None\n"
             "    import course_lib.checks.compare as c\n    c.same = lambda *a: True",
    "player": "import course_lib.checks.in_rank as p\n    p.snapshot = lambda value: None\n"
              "    p._notes = lambda *a: ()",
    "trace": "import course_lib.trace as t\n    t.Trace.events = []",
    "verdict": "import course_lib.checks.verdict as v\n    v.Verdict.passed = True",
}  # fmt: skip


@pytest.mark.parametrize("patch", PATCHES)
def test_patching(patch: str) -> None:
    source = f"def ring_all_reduce(tensor):\n    {PATCHES[patch]}\n"
    got = verdict("ring_all_reduce", source)
    assert not got.levels["core"].passed, str(got)


def test_a_tensor_that_equals_everything() -> None:
    source = """
class Yes(torch.Tensor):
    def __eq__(self, other):
        return torch.ones(self.shape, dtype=torch.bool)
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
        return out

def exchange(mine, partner):
    return mine.clone().as_subclass(Yes)
"""
    assert not verdict("exchange", source).levels["core"].passed
