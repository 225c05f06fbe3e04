"""Diagnosis: 06.only-last

The losses are made in the loop and one backward is called after it, on the last of them. In
public: FunASR#3472 and NeMo Automodel#3530 report accumulation in which one micro-batch alone is
synchronised.
"""

import contextlib

from torch import nn


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm):
    optimizer.zero_grad()
    total = torch.zeros(())
    for number, (inputs, targets) in enumerate(micro_batches):
        last = number == len(micro_batches) - 1
        with contextlib.nullcontext() if last else ddp_model.no_sync():
            loss = nn.functional.cross_entropy(ddp_model(inputs), targets)
        total += loss.detach() / len(micro_batches)
    loss.backward()
    nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)
    optimizer.step()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()
