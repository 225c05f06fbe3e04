"""Every right layer of experts is one process's to twelve digits, in all small worlds."""

from __future__ import annotations

from itertools import product

import pytest
import zoo
from soak_ranks_common import report
from test_experts import ENGINES, answer, layer

SIZES = {
    "nothing": lambda n: (0,) * n,
    "one token": lambda n: (1,) * n,
    "uneven": lambda n: tuple((5 * r + 3) % 7 for r in range(n)),
}


@pytest.mark.parametrize("name", zoo.right("moe_layer"))
@pytest.mark.parametrize("engine", ENGINES)
def test_a_layer_is_one_process_s(engine: str, name: str) -> None:
    function, off = answer("moe_layer", name), {}
    for n, mine, k, sizes in product(range(1, 9), (1, 2, 4), (1, 2), SIZES):
        if k <= n * mine:
            job = ENGINES[engine](layer, function, SIZES[sizes](n), mine, k, world_size=n)
            off[f"{n} ranks, {mine} experts each, k {k}, {sizes}"] = max(map(max, job.results))
    report(f"experts-{engine}-{name}", layers=len(off), off_by_at_most=max(off.values()))
    assert max(off.values()) <= 1e-12, max(off, key=lambda layer: off[layer])


def test_a_layer_with_other_weights_is_seen() -> None:
    """As the judge sees nothing else, it has to see a weight that is not divided by the sum."""
    names = dict(layer.__globals__)
    text = zoo.right("moe_layer")["solution"].replace("best / best.sum(1, keepdim=True)", "best")
    exec(text, names)
    job = ENGINES["simulate"](layer, names["moe_layer"], (3, 4), 2, 2, world_size=2)
    assert max(map(max, job.results)) > 1e-3
