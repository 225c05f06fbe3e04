"""Every right layer of experts is one process's to twelve digits, in all small worlds."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch.distributed as dist
import zoo
from soak_ranks_common import by_value, report
from test_experts import ENGINES, answer, layer

by_value("test_experts")
by_value(__name__)

SIZES = {
    "nothing": lambda n: (0,) * n,
    "one token": lambda n: (1,) * n,
    "uneven": lambda n: tuple((5 * r + 3) % 7 for r in range(n)),
}


def layers(function: Any) -> dict[tuple[int, int, str], float]:
    """By experts of a rank, k and tokens, how far this rank is from one process at most."""
    n = dist.get_world_size()
    worlds = [w for w in product((1, 2, 4), (1, 2), SIZES) if w[1] <= n * w[0]]
    return {w: max(layer(function, SIZES[w[2]](n), w[0], w[1])) for w in worlds}


@pytest.mark.parametrize("name", zoo.right("moe_layer"))
@pytest.mark.parametrize("engine", ENGINES)
def test_a_layer_is_one_process_s(engine: str, name: str) -> None:
    off = {}
    for n in range(1, 9):
        job = ENGINES[engine](layers, answer("moe_layer", name), world_size=n)
        off |= {(n, *world): max(rank[world] for rank in job.results) for world in job.results[0]}
    report(f"experts-{engine}-{name}", layers=len(off), off_by_at_most=max(off.values()))
    assert max(off.values()) <= 1e-12, max(off, key=off.__getitem__)


def test_a_layer_with_other_weights_is_seen() -> None:
    """As the judge sees nothing else, it has to see a weight that is not divided by the sum."""
    names = dict(layer.__globals__)
    text = zoo.right("moe_layer")["solution"].replace("best / best.sum(1, keepdim=True)", "best")
    exec(text, names)
    job = ENGINES["simulate"](layer, names["moe_layer"], (3, 4), 2, 2, world_size=2)
    assert max(map(max, job.results)) > 1e-3
