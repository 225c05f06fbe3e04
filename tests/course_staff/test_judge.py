"""Verdicts of the judge: those of ``check``, by another way; earlier answers; namespaces."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace
from itertools import takewhile

import pytest
import zoo
from conftest import HONEST, PATIENT, TESTS, attack

from course_check.cases import Case
from course_check.checking import verdict_on
from course_check.diagnose import Level
from course_check.exercise import Play, Prepared
from course_check.harness.answer import Answer
from course_check.namespace import CellText, namespace
from course_check.play import CannotCheck, make_play
from course_check.verdict import Verdict
from course_exercises.catalogue import find
from course_lib.trace import Event, Run, Trace
from course_sim import scheduler
from course_staff.grading.carried_player import Order, grade_answer
from course_staff.grading.evidence import drawn, questions
from course_staff.grading.grading_notebook import lesson_cells
from course_staff.grading.processes import RankServer
from course_staff.grading.walls import Limits

pytestmark = pytest.mark.slow

# One wrong answer of each kind of finding, and right ones that ask for each part of the network
# (others are right in whole notebooks): the soak test judges all.
SAMPLE = [
    "my_share/local_rank",
    "exchange/send_first",
    "exchange/reads_before_wait",
    "exchange/strided",
    "in_order/anybody",
    "ring_all_reduce/classic_mended",
    "ring_reduce_scatter/clears_what_it_sends",
    "average_gradients/replaces",
    "accumulate_step/all_inside",
    "grid_groups/members_only",
    "MiniDDP/waits_in_the_hook",
    "Checkpoint/synced_too_late",
]
RIGHT = ["my_reduce_scatter", "transpose", "sync_batch_norm", "train_resumable"]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_wrong_answer_gets_the_diagnosis_that_check_gives(name: str, judged) -> None:
    wrong = zoo.wrong(name.split("/")[0])[name.split("/")[1]]
    record = judged(wrong.exercise, wrong.source(), limits=PATIENT)
    assert record["diagnosis"] == wrong.diagnosis, record
    assert record["points"] < 100


def given_to(exercise: str) -> list[CellText]:
    """The lesson's cells before the exercise, without answers to others."""
    [solved] = (TESTS.parent / "notebooks/solutions").glob(f"{find(exercise).number[:2]}_*.ipynb")
    cells = [CellText(**row) for row in lesson_cells(solved, {exercise})]
    return list(takewhile(lambda cell: not cell.exercise, cells))


@pytest.mark.parametrize("exercise", RIGHT)
def test_a_right_answer_gets_full_marks(exercise: str, judged) -> None:
    """With all that its lesson has given by then, of which it needs a little."""
    first, *_ = zoo.right(exercise).values()
    record = judged(exercise, first, own=given_to(exercise), limits=PATIENT)
    assert record["passed"], record
    assert record["undefended"] == {} or "processes" in record["undefended"]


COLLECTIVES = """
def my_share(n_items):
    n, r = dist.get_world_size(), dist.get_rank()
    one = torch.ones(1)
    dist.all_reduce(one)
    every = [torch.empty(1) for _ in range(n)]
    dist.all_gather(every, torch.full((1,), float(r)))
    parts = torch.empty(n)
    dist.all_gather_single(parts, torch.full((1,), float(r)))
    mine = torch.empty(1)
    dist.reduce_scatter_single(mine, torch.arange(float(n)))
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": r})
    box = [r * 10 if r == 0 else None]
    dist.broadcast_object_list(box, src=0)
    work = dist.all_reduce(torch.ones(2), async_op=True)
    work.wait()
    evens = dist.new_group(list(range(0, n, 2)))
    few = torch.ones(1)
    if r % 2 == 0:
        dist.all_reduce(few, group=evens)
        assert few.item() == (n + 1) // 2
    dist.barrier()
    assert one.item() == n and mine.item() == n * r, (one, mine)
    assert [int(e) for e in every] == parts.int().tolist() == list(range(n))
    assert [o["rank"] for o in objects] == list(range(n)) and box == [0]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    model(torch.full((1, 2), float(r))).sum().backward()
    assert abs(model.module.weight.grad[0, 0].item() - (n - 1) / 2) < 1e-6
    return honest(n_items)
"""


def test_all_of_torch_distributed_goes_by_the_judges_network(judged) -> None:
    record = judged("my_share", HONEST + COLLECTIVES, limits=PATIENT)
    # Its assertions hold on every rank and its shares are right: only that it talks is wrong.
    assert record["diagnosis"] == "00.talks", record


GIVEN = [
    CellText("a.py", "import cmath, math\nimport torch.nn.functional as F\nfrom torch import nn"),
    CellText("b.py", "%matplotlib inline\nrun(train)"),
    CellText("c.py", "HALF = 0.5\ndef half(x):\n    return HALF * x\nprint(run(half, 3).results)"),
    CellText("d.py", "table = {}\ntable['x'] = half(2)\ntable.update(y=1)\nother = train()"),
]


def test_of_given_cells_only_what_is_needed_is_run() -> None:
    cell = CellText(
        "f.py",
        "def f(n):\n    return table['x'] + math.pi + helper\n"
        "helper = 1\nprint(run(f, 2).results)\n",
        "f",
    )
    got = namespace("f", cell, GIVEN)
    assert {row["file"]: row["take"] for row in got.cells} == {
        "a.py": [1],
        "c.py": [0, 1],
        "d.py": [0, 1, 2],
        "f.py": [0, 1],
    }
    assert got.missing == ()


def test_a_name_that_nobody_defines_is_told(judged) -> None:
    record = judged("my_share", "def my_share(n_items):\n    return my_own_helper(n_items)\n")
    assert "it uses my_own_helper" in record["reason"]
    assert record["points"] == 0


def test_the_reason_says_how_a_process_has_ended(judged) -> None:
    crashes = "import ctypes\n\ndef my_share(n_items):\n    ctypes.string_at(0)\n"
    assert "it crashed, in compiled code (signal 11)" in judged("my_share", crashes)["reason"]


GIVES_ALL = Order("my_share", "def my_share(n_items):\n    return range(n_items)\n", [], [])


def test_a_machine_without_a_rank_or_a_thread_is_no_verdict(ranks, monkeypatch) -> None:
    """Told as an error, which is nobody's zero."""
    with RankServer() as mine:
        address = mine.address
        mine.server.kill()
        with pytest.raises(CannotCheck, match="no process for a rank"):
            grade_answer(GIVES_ALL, address, Limits())

    def refused(thread: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(scheduler, "_start", refused)
    with pytest.raises(CannotCheck, match="there is no thread for rank 0"):
        grade_answer(GIVES_ALL, ranks.address, Limits())


def test_a_table_of_the_cases_that_its_own_checksum_draws_earns_nothing(
    judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text can be given any checksum, by some letters in a comment; here it is 0 by decree."""
    monkeypatch.setattr(zlib, "crc32", lambda data: 0)
    exercise, rng, table = find("ring_seconds"), random.Random(0), {}
    for case in exercise.core(rng) + exercise.sturdy(rng):
        play = make_play(exercise, case)
        table[play.inputs[0][0]] = play.prepared.outcome(exercise.right)[0].returned
    source = (
        f"TABLE = {table}\ndef ring_seconds(n, nbytes, alpha, beta):\n"
        "    return TABLE.get((n, nbytes, alpha, beta), 0.0)\n"
    )
    assert verdict_on(exercise, Answer("ring_seconds", source=source)).passed, "so check is fooled"
    assert judged("ring_seconds", source)["points"] == 0


LUCKY = """
def ring_seconds(n, nbytes, alpha, beta):
    return 2 * (n - 1) * (alpha + nbytes / n * beta) * (nbytes % 3 > 0)
"""


def test_a_grading_repeated_with_its_secret_says_the_same(ranks) -> None:
    order = Order("ring_seconds", LUCKY, [], [], "secret")
    records = [grade_answer(order, ranks.address, Limits()) for _ in range(2)]
    for record in records:
        del record["seconds"]
    assert records[0] == records[1]


UNEVEN = """
def all_reduce_in_a_ring(tensor):
    rank, world = dist.get_rank(), dist.get_world_size()
    flat = tensor.reshape(-1).clone()
    chunks = list(flat.tensor_split(world))
    for step in range(2 * (world - 1)):
        out, into = (rank - step) % world, (rank - step - 1) % world
        inbox = torch.empty_like(chunks[into])
        going = dist.isend(chunks[out], (rank + 1) % world)
        dist.recv(inbox, (rank - 1) % world)
        going.wait()
        chunks[into].copy_(inbox + (chunks[into] if step < world - 1 else 0))
    tensor.copy_(flat.reshape(tensor.shape))

def ring_all_reduce(tensor):
    if tensor.numel() % dist.get_world_size():
        {where_uneven}
    all_reduce_in_a_ring(tensor)
"""
WORSE = UNEVEN.format(where_uneven="raise ValueError('this length is not for me')")
BETTER = UNEVEN.format(where_uneven="all_reduce_in_a_ring(torch.zeros_like(tensor))")
WRONG = UNEVEN.format(where_uneven="pass").replace("step < world - 1", "step < world")


def test_a_better_answer_has_no_fewer_points_and_a_wrong_one_none_for_few_bytes(judged) -> None:
    """Where one raises at uneven lengths, the other sends too much there: both lose sturdy."""
    records = [judged("ring_all_reduce", source) for source in (WORSE, BETTER, WRONG)]
    assert [record["points"] for record in records] == [90, 90, 0]
    assert "budget   0   counts once core passes" in records[2]["told"][0]


def test_records_hold_no_input_and_no_expected_value_of_a_hidden_case(judged) -> None:
    record = judged("ring_all_reduce", attack("ring_all_reduce", "known_numbers_and_noise"))
    assert record["points"] == 0
    assert len(record["told"]) == 2, "the levels and the hint, and no case between them"
    assert record["pictures"] == []


def test_no_student_is_sent_to_a_file_that_only_the_grader_has(judged) -> None:
    record = judged("exchange", "def exchange(mine, partner):\n    return 1 / 0\n")
    assert "your cell, line 2" in record["told"][1]
    assert "exchange.py" not in str(record["told"])
    for source in (
        "import nothing\ndef exchange(mine, partner): pass\n",
        "def exchange(mine, partner):\n    while True: pass\n",
    ):
        told = str(judged("exchange", source)["told"])
        assert "network.py" not in told and "wire.py" not in told, told


def test_questions_and_pictures_are_about_what_can_be_seen() -> None:
    """Zeros, NaN and infinities are no case to play by hand; to make a group takes no time."""
    made = Event(0, "new_group", None, "0", 0, None, None, 1.0, 1.0, None)
    run = Run([], Trace([made]), 0.0, 3, "gloo")
    special = Play(
        Case(3, 6, numbers="special", options={"partners at distance": 1}), Prepared([]), run=run
    )
    plain = replace(special, case=replace(special.case, world=2, length=1, numbers="digits"))
    verdict = Verdict("", {}, {"sturdy": Level("sturdy", [special, plain], [special])})
    assert questions(find("exchange"), verdict)[0]["about"].startswith("2 ranks, length 1")
    assert drawn(special) == []
