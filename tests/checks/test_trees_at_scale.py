"""Right answers of lesson 09 against gloo's own calls, on real ranks and random lengths; and trees
of a thousand simulated ranks. ``tests/soak/soak_trees.py`` plays more of both."""

from __future__ import annotations

import math
import random
import sys

import cloudpickle
import pytest
import torch
import torch.distributed as dist
import zoo

from course_lib import Network, run, simulate
from course_lib.checks.in_rank import Answer

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # no rank imports pytest

TREE, DOUBLING, HIERARCHY = "tree_broadcast", "recursive_doubling", "hierarchical_all_reduce"
Program = tuple[int, int, int, int]  # length, seed, root, ranks of a node


def answers(exercise: str) -> list[Answer]:
    return [Answer(exercise, source=source, file=f"{exercise}.py")
            for source in zoo.right(exercise).values()]  # fmt: skip


def all_right() -> dict[str, list[Answer]]:
    return {name: answers(name) for name in (TREE, DOUBLING, HIERARCHY)}


def programs(count: int, seed: int, worlds: tuple[int, ...]) -> dict[int, list[Program]]:
    """Drawn programs by world size: those of one size travel together."""
    rng = random.Random(seed)
    out: dict[int, list[Program]] = {}
    for _ in range(count):
        n = rng.choice(worlds)
        nodes = rng.choice([g for g in range(1, n + 1) if n % g == 0])
        length = rng.choice((0, 1, rng.randrange(2, 9), rng.randrange(9, 5000)))
        out.setdefault(n, []).append((length, rng.randrange(1 << 30), rng.randrange(n), nodes))
    return out


def differing(programs: list[Program], right: dict[str, list[Answer]]) -> list[str]:
    """Runs in a real rank: which answers do not leave there what gloo does."""
    wrong, rank = [], dist.get_rank()
    for length, seed, root, per_node in programs:
        generator = torch.Generator().manual_seed(seed + rank)
        mine = torch.randint(-1000, 1000, (length,), generator=generator).float()
        told, total = mine.clone(), mine.clone()
        dist.broadcast(told, src=root)
        dist.all_reduce(total)
        asked = {TREE: (told, (root,)), DOUBLING: (total, ()), HIERARCHY: (total, (per_node,))}
        for name, (want, more) in asked.items():
            for number, answer in enumerate(right[name]):
                got = mine.clone()
                answer.load()(got, *more)
                if not torch.equal(got, want):
                    wrong.append(f"{name} {number}: {(length, seed, root, per_node)}")
    return wrong


def compared(count: int, seed: int, worlds: tuple[int, ...]) -> list[str]:
    drawn, right = programs(count, seed, worlds), all_right()
    jobs = [run(differing, some, right, world_size=n, timeout=300) for n, some in drawn.items()]
    return [line for job in jobs for rank in job.results for line in rank]


@pytest.mark.slow
def test_answers_leave_what_gloo_leaves():
    assert compared(10, 0, (3, 4, 6)) == []


def test_the_comparison_sees_an_answer_that_is_wrong():
    wrong = Answer(TREE, source=zoo.source(TREE, "root_0"), file="wrong.py")
    job = simulate(differing, [(3, 1, 1, 1)], all_right() | {TREE: [wrong]}, world_size=2)
    assert [line.partition(":")[0] for line in job.results[0]] == [f"{TREE} 0"]


def many_ranks(answer: Answer, src: int | None) -> tuple[list[float], float]:
    """What each of 1,000 simulated ranks has of everybody's or of src's number, and the rounds."""

    def play() -> float:
        tensor = torch.ones(2) if src is None else torch.full((2,), float(dist.get_rank()))
        answer.load()(*[tensor] if src is None else [tensor, src])
        return tensor[0].item()

    job = simulate(play, world_size=1000)
    return job.results, job.seconds / Network().seconds(8)


@pytest.mark.slow
@pytest.mark.parametrize("exercise", [TREE, DOUBLING])
def test_a_thousand_ranks(exercise: str):
    src = 613 if exercise == TREE else None
    results, rounds = many_ranks(answers(exercise)[0], src)
    assert set(results) == {1000.0 if src is None else 613.0}
    assert rounds <= math.ceil(math.log2(1000)) + (src is None) + 1e-6
