"""Answers to hierarchical_all_reduce."""

import torch
import torch.distributed as dist


def share_by_share(tensor, gpus_per_node):
    n, g = dist.get_world_size(), gpus_per_node
    node, _ = dist.new_subgroups(g)
    columns = [list(range(local, n, g)) for local in range(g)]
    across, _ = dist.new_subgroups_by_enumeration(columns)
    flat = tensor.contiguous().view(-1)
    shares = [share.clone() for share in flat.tensor_split(g)]
    for local, share in enumerate(shares):
        dist.reduce(share, group_dst=local, group=node)
    dist.all_reduce(shares[dist.get_rank() % g], group=across)
    for local, share in enumerate(shares):
        dist.broadcast(share, group_src=local, group=node)
    tensor.copy_(torch.cat(shares).view(tensor.shape))


def with_messages(tensor, gpus_per_node):
    rank, n, g = dist.get_rank(), dist.get_world_size(), gpus_per_node

    def ring(ranks, chunks, steps, adds):
        m, me = len(ranks), ranks.index(rank)
        for step in range(steps):
            k = me - step
            inbox = torch.empty_like(chunks[(k - 1) % m])
            going = dist.isend(chunks[k % m], ranks[(me + 1) % m])
            dist.recv(inbox, ranks[me - 1])
            going.wait()
            chunks[(k - 1) % m].copy_(inbox + chunks[(k - 1) % m] if step < adds else inbox)

    node, flat = range(rank - rank % g, rank - rank % g + g), tensor.reshape(-1).clone()
    shares = flat.tensor_split(g)
    ring(node, shares, g - 1, g - 1)
    own, across = shares[(rank + 1) % g], range(rank % g, n, g)
    ring(across, own.tensor_split(n // g), 2 * (n // g - 1), n // g - 1)
    turned = [shares[(k + 1) % g] for k in range(g)]
    ring(node, turned, g - 1, 0)
    tensor.copy_(flat.view(tensor.shape))


WRONG = """
== solution
flat, flat: the sum is right
-     dist.reduce_scatter_single(mine, padded, group=node)
-     dist.all_reduce(mine, group=across)
-     dist.all_gather_single(padded, mine, group=node)
+     dist.all_reduce(padded)
leaders, leaders-only: one rank speaks for its node, as in Horovod's first hierarchy
(horovod/horovod#329)
-     dist.reduce_scatter_single(mine, padded, group=node)
-     dist.all_reduce(mine, group=across)
-     dist.all_gather_single(padded, mine, group=node)
+     dist.reduce(padded, group_dst=0, group=node)
+     if dist.get_rank() % g == 0:
+         dist.all_reduce(padded, group=across)
+     dist.broadcast(padded, group_src=0, group=node)
whole_across, over-share: every rank takes the whole tensor across
-     dist.reduce_scatter_single(mine, padded, group=node)
-     dist.all_reduce(mine, group=across)
-     dist.all_gather_single(padded, mine, group=node)
+     dist.all_reduce(padded, group=node)
+     dist.all_reduce(padded, group=across)
forgets_the_others, node-only: two of the three steps
~     dist.all_reduce(mine, group=across) =>
unequal_parts, unequal-parts: tried with lengths that g divides
~ -(-tensor.numel() // g) => tensor.numel() // g
~ tensor.new_zeros(g * part) => tensor.new_zeros(tensor.numel())
members_only, not-together: only members call new_group: pytorch/pytorch#130102
-     node, _ = dist.new_subgroups(g)
+     first = dist.get_rank() // g * g
+     node = dist.new_group(list(range(first, first + g)))
"""
