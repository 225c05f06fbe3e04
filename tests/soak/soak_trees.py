"""Lesson 09's right answers against gloo: 200 random worlds and lengths; and all on 1,000 ranks."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
import zoo
from soak_ranks_common import by_value, count, report

from course_check.harness.answer import Answer
from course_lib import Network, run, simulate

by_value(__name__)

TREE, DOUBLING, HIERARCHY = "tree_broadcast", "recursive_doubling", "hierarchical_all_reduce"
Program = tuple[int, int, int, int]  # length, seed, root, ranks of a node


def answers(exercise: str) -> list[Answer]:
    return [
        Answer(exercise, source=source, file=f"{exercise}.py")
        for source in zoo.right(exercise).values()
    ]


def programs(count: int) -> dict[int, list[Program]]:
    """Drawn programs by world size: those of one size travel together."""
    rng = random.Random(1)
    out: dict[int, list[Program]] = {}
    for _ in range(count):
        n = rng.randrange(1, 9)
        nodes = rng.choice([g for g in range(1, n + 1) if n % g == 0])
        length = rng.choice((0, 1, rng.randrange(2, 9), rng.randrange(9, 5000)))
        out.setdefault(n, []).append((length, rng.randrange(1 << 30), rng.randrange(n), nodes))
    return out


def differing(programs: list[Program], answers: dict[str, list[Answer]]) -> list[str]:
    """Runs in a real rank: which answers do not leave there what gloo does."""
    wrong, rank = [], dist.get_rank()
    for length, seed, root, per_node in programs:
        generator = torch.Generator().manual_seed(seed + rank)
        mine = torch.randint(-1000, 1000, (length,), generator=generator).float()
        told, total = mine.clone(), mine.clone()
        dist.broadcast(told, src=root)
        dist.all_reduce(total)
        asked = {TREE: (told, (root,)), DOUBLING: (total, ()), HIERARCHY: (total, (per_node,))}
        for name, several in answers.items():
            want, more = asked[name]
            for number, answer in enumerate(several):
                got = mine.clone()
                answer.load()(got, *more)
                if not torch.equal(got, want):
                    wrong.append(f"{name} {number}: {(length, seed, root, per_node)}")
    return wrong


def test_answers_leave_what_gloo_leaves():
    drawn, right = programs(count(200)), {n: answers(n) for n in (TREE, DOUBLING, HIERARCHY)}
    jobs = [run(differing, some, right, world_size=n, timeout=300) for n, some in drawn.items()]
    wrong = [line for job in jobs for rank in job.results for line in rank]
    report("trees", programs=sum(map(len, drawn.values())), wrong=wrong)
    assert wrong == []


def test_the_comparison_sees_an_answer_that_is_wrong():
    wrong = Answer(TREE, source=zoo.source(TREE, "root_0"), file="wrong.py")
    job = simulate(differing, [(3, 1, 1, 1)], {TREE: [wrong]}, world_size=2)
    assert [line.partition(":")[0] for line in job.results[0]] == [f"{TREE} 0"]


@pytest.mark.parametrize(("exercise", "src"), [(TREE, [613]), (DOUBLING, [])])
def test_every_right_answer_on_a_thousand_ranks(exercise: str, src: list[int]):
    for answer in answers(exercise):

        def play(answer: Answer = answer) -> float:
            tensor = torch.full((2,), float(dist.get_rank()))
            answer.load()(tensor, *src)
            return tensor[0].item()

        job = simulate(play, world_size=1000)
        assert set(job.results) == {613.0 if src else sum(range(1000))}
        assert job.seconds / Network().seconds(8) <= (10 if src else 11) + 1e-6
