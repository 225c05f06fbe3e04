"""Diagnosis: 06.clips-before-sync

Every rank clips its own gradient, then all average: n gradients of the right length do not add up
to one.
"""

import contextlib

from torch import nn


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm):
    optimizer.zero_grad()
    total = torch.zeros(())
    for number, (inputs, targets) in enumerate(micro_batches):
        last = number == len(micro_batches) - 1
        with ddp_model.no_sync():
            loss = nn.functional.cross_entropy(ddp_model(inputs), targets) / len(micro_batches)
            loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)
    for parameter in ddp_model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
    optimizer.step()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()
