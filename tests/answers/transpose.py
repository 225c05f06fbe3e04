"""Answers to transpose."""

import torch
import torch.distributed as dist


def turned_first(my_rows):
    n = dist.get_world_size()
    k, m = my_rows.shape
    mine = my_rows.t().contiguous()  # m × k: block j is what goes to rank j
    theirs = torch.empty_like(mine)
    dist.all_to_all_single(theirs, mine)
    return theirs.view(n, m // n, k).transpose(0, 1).reshape(m // n, n * k).contiguous()


def turned_last(my_rows):
    n, (k, m) = dist.get_world_size(), my_rows.shape
    outbox = torch.stack([block.contiguous() for block in my_rows.split(m // n, dim=1)])
    inbox = torch.zeros((n, k, m // n), dtype=my_rows.dtype)
    dist.all_to_all_single(inbox, outbox)
    return inbox.permute(2, 0, 1).reshape(m // n, n * k).contiguous()


WRONG = """
== solution
not_turned, blocks-not-turned: all_to_all is taken for the transpose
~ block.t().contiguous() => block.contiguous()
gathers, calls: all of A, transposed, and then a slice
      n = dist.get_world_size()
+     every = [torch.empty(my_rows.shape, dtype=my_rows.dtype) for _ in range(n)]
+     dist.all_gather(every, my_rows.contiguous())
+     return torch.cat(every).t().chunk(n)[dist.get_rank()].contiguous()
== turned_first
own_only, nothing-sent: t() is all that is done
      mine = my_rows.t().contiguous()  # m × k: block j is what goes to rank j
+     return mine
sends_a_view, strided: t() is a view, and not contiguous
~ mine = my_rows.t().contiguous() => mine = my_rows.t()
~ torch.empty_like(mine) => torch.empty(m, k, dtype=my_rows.dtype)
== turned_last
a_view, not-contiguous: a transpose is a view
~ inbox.permute(2, 0, 1).reshape(m // n, n * k).contiguous() => inbox.reshape(n * k, m // n).t()
"""
