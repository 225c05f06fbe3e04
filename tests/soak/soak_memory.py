"""``count_memory`` beside torch's MemTracker, and beside itself in the other engine, in bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import test_count_memory
import torch
from soak_ranks_common import by_value, count, report
from test_count_memory import WIDTH, by_hand, ddp, sharded, step, three_steps, zero_1
from torch.distributed._tools.mem_tracker import MemTracker

from course_lib import count_memory, run, simulate

by_value(test_count_memory.__name__)
by_value(__name__)

MAKES: dict[str, Callable[[], tuple]] = {
    "by hand": by_hand,
    "DDP": ddp,
    "ZeRO-1": zero_1,
    "fully_shard": partial(sharded, True),
    "kept whole": partial(sharded, False),
}


def both(make: Callable[[], tuple], kept: int = 0) -> list[int]:
    """After each of three steps, our bytes at rest less torch's; we alone look at ``kept``."""
    model, optimizer = make()
    x, more = torch.ones(1, WIDTH), torch.empty(kept)
    tracker, differences = MemTracker(), []
    tracker.track_external(model, optimizer, x)
    with tracker, count_memory(model, optimizer, x, more) as memory:
        for _ in range(3):
            tracker.reset_mod_stats()
            step(model, optimizer, x)
            mine = memory.at_rest()  # gloo's thread has let go: torch's figure is read after that
            told = tracker.get_tracker_snapshot("current")[x.device]["Total"]
            differences.append(mine - told)
    return differences


@pytest.mark.timeout(3600)
def test_no_byte_differs_from_torchs_tracker_and_from_the_other_engine():
    """Torch's hooks are those of a process: of simulated ranks it follows one alone."""
    wrong, compared = [], 0
    for number in range(count(30)):
        for name, make in MAKES.items():
            told = [run(both, make, world_size=2), simulate(both, make, world_size=1)]
            figures = [engine(three_steps, make, world_size=2) for engine in (run, simulate)]
            differences = [by for job in told for rank in job.results for by in rank]
            pairs = zip(*(job.results for job in figures), strict=True)
            differences += [a - b for one, other in pairs for a, b in zip(one, other, strict=True)]
            compared += len(differences)
            wrong += [(number, name, differences)] if any(differences) else []
    report("memory", compared=compared, wrong=wrong)
    assert not wrong


def test_a_tensor_that_one_of_both_does_not_know_is_a_difference():
    assert simulate(partial(both, by_hand, kept=3), world_size=1).results == [[12] * 3]
