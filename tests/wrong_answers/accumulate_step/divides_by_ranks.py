"""Diagnosis: 06.divides-again

The averaging that was needed by hand, once more: DDP has divided already.
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
        total += loss.detach()
    for parameter in ddp_model.parameters():
        if parameter.grad is not None:
            parameter.grad /= dist.get_world_size()
    nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)
    optimizer.step()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()
