"""Answers to test_all_reduce: tests, which are judged by what they catch."""

import torch
import torch.distributed as dist


def by_formula(all_reduce):
    rank, n = dist.get_rank(), dist.get_world_size()
    for call in range(2):
        x = torch.arange(2 * n + 1) * (rank + 1) + call
        all_reduce(x)
        want = torch.arange(2 * n + 1) * (n * (n + 1) // 2) + call * n
        assert torch.equal(x, want), f"rank {rank} has {x.tolist()}"
    large = torch.tensor([2**40 + rank])
    all_reduce(large)
    assert large.item() == n * 2**40 + n * (n - 1) // 2
    table = torch.full((2 * n + 1, 2), float(rank))
    all_reduce(table[:, 0])
    assert (table[:, 0] == n * (n - 1) / 2).all()
    assert (table[:, 1] == rank).all(), "the other column has changed"


def everybody_makes_all_inputs(all_reduce):
    rank, n = dist.get_rank(), dist.get_world_size()
    for seed in range(3):
        for dtype in (torch.float64, torch.int64):
            source = torch.Generator().manual_seed(seed)
            whole = torch.randint(-(2**40), 2**40, (n, 3 * n + 1, 2), generator=source).to(dtype)
            mine = whole[rank].clone()
            view = mine.t()[0]
            all_reduce(view)
            expected = whole[rank].clone()
            expected[:, 0] = whole[:, :, 0].sum(0)
            torch.testing.assert_close(mine, expected, rtol=0, atol=0)


def with_floats(all_reduce):
    rank, n = dist.get_rank(), dist.get_world_size()
    if n == 1:
        return
    makes = [
        lambda r: torch.randn(9, 5, generator=torch.Generator().manual_seed(r)),
        lambda r: torch.randn(9, 5, generator=torch.Generator().manual_seed(r + 100)),
        lambda r: torch.arange(11) + 2**30 * (r + 1),
    ]
    for make in makes:
        memory = make(rank)
        want = sum(make(r) for r in range(n))
        x = memory[::2]
        before = memory[1::2].clone()
        all_reduce(x)
        torch.testing.assert_close(x, want[::2])
        assert torch.equal(memory[1::2], before)


WRONG = """
== by_formula
prints, swallowed: what is wrong is printed
-         assert torch.equal(x, want), f"rank {rank} has {x.tolist()}"
+         if not torch.equal(x, want): return print(rank, 'is wrong')
returns_false, returns-verdict: a test is thought to be a predicate
-         assert torch.equal(x, want), f"rank {rank} has {x.tolist()}"
+         if not torch.equal(x, want): return False
          if not torch.equal(x, want): return False
+     return True
looks_at_what_is_returned, uses-returned: functions return results
~         all_reduce(x) =>         x = all_reduce(x)
before_the_call, asserts-before: the assertion stands a line too high
~         all_reduce(x) =>
          assert torch.equal(x, want), f"rank {rank} has {x.tolist()}"
+         all_reduce(x)
tuple, never-fails: the parentheses make a tuple, which is true
-         assert torch.equal(x, want), f"rank {rank} has {x.tolist()}"
+         assert (torch.equal(x, want), f"rank {rank} has {x.tolist()}")
          assert (torch.equal(x, want), f"rank {rank} has {x.tolist()}")
+     return
a_length_for_each_rank, unlike-inputs: every rank has its own input
~ torch.arange(2 * n + 1) * (rank + 1) => torch.ones(rank + 3)
"""
