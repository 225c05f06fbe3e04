"""Nobody is accused who waits for a Work, in whatever way. Others are in tests/programs."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from course_lib import run


def waits_for_the_future():
    dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()


def waits_for_what_follows():
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    future.then(lambda f: f.value()).then(lambda f: f.value()).wait()


def asks_until_it_is_done():
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    while not future.done():
        pass
    future.value()


def has_a_hook():
    def halved(_state, bucket):
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda f: f.value()[0] / 2)

    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    model.register_comm_hook(None, halved)
    model(torch.ones(2, 4)).sum().backward()


def meets_in_a_barrier():
    """gloo's ends when all is done that its rank has called before."""
    x = torch.ones(4)
    dist.all_reduce(x, async_op=True)
    dist.barrier()
    dist.all_reduce(x)


def waits_before_it_fills_again():
    x = torch.ones(4)
    for _ in range(3):
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            pass
        dist.all_reduce(x)
    works = [dist.all_reduce(part, async_op=True) for part in torch.ones(8).chunk(4)]
    for work in works:
        work.wait()


def reads_at_once():
    """Rank 0 only reads what it broadcasts, in both groups."""
    x, groups = torch.ones(4), [dist.new_group([0, 1]) for _ in range(2)]
    other = torch.ones(4)
    second = x if dist.get_rank() == 0 else other
    works = [
        dist.broadcast(x, 0, group=groups[0], async_op=True),
        dist.broadcast(second, 0, group=groups[1], async_op=True),
    ]
    for work in works:
        work.wait()


RIGHT = (
    waits_for_the_future,
    waits_for_what_follows,
    asks_until_it_is_done,
    has_a_hook,
    meets_in_a_barrier,
    waits_before_it_fills_again,
    reads_at_once,
)


def test_who_waits_is_not_accused():
    run(lambda: [function() for function in RIGHT], world_size=2)
