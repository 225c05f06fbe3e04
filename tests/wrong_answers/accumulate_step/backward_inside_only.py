"""Diagnosis: 06.forward-outside

Only backward() stands in no_sync. PyTorch's page of no_sync warns that the forward pass has to
stand in it as well.
"""

import contextlib

from torch import nn


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm):
    optimizer.zero_grad()
    total = torch.zeros(())
    for number, (inputs, targets) in enumerate(micro_batches):
        last = number == len(micro_batches) - 1
        loss = nn.functional.cross_entropy(ddp_model(inputs), targets) / len(micro_batches)
        with contextlib.nullcontext() if last else ddp_model.no_sync():
            loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)
    optimizer.step()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()
