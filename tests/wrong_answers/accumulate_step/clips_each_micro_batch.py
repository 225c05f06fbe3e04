"""Diagnosis: 06.clips-before-sync

Clipped after every backward, as in the loop of one process: what is clipped first is a part of
one rank's gradient.
"""

import contextlib

from torch import nn


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm):
    optimizer.zero_grad()
    total = torch.zeros(())
    for number, (inputs, targets) in enumerate(micro_batches):
        last = number == len(micro_batches) - 1
        with contextlib.nullcontext() if last else ddp_model.no_sync():
            loss = nn.functional.cross_entropy(ddp_model(inputs), targets) / len(micro_batches)
            loss.backward()
        nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)
        total += loss.detach()
    optimizer.step()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()
