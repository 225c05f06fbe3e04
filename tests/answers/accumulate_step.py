"""Answers to accumulate_step."""

import torch
import torch.distributed as dist
from torch import nn


def one_backward_for_all(ddp_model, optimizer, micro_batches, max_norm):
    ddp_model.zero_grad()
    losses = [nn.functional.cross_entropy(ddp_model(x), y) for x, y in micro_batches]
    mean = torch.stack(losses).mean()
    mean.backward()
    nn.utils.clip_grad_norm_(ddp_model.module.parameters(), max_norm)
    optimizer.step()
    everyones = [None] * dist.get_world_size()
    dist.all_gather_object(everyones, mean.item())
    return sum(everyones) / len(everyones)


def switches_the_flag(ddp_model, optimizer, micro_batches, max_norm):
    optimizer.zero_grad()
    running = 0.0
    for i, (x, y) in enumerate(micro_batches, start=1):
        ddp_model.require_backward_grad_sync = i == len(micro_batches)
        loss = nn.functional.cross_entropy(ddp_model(x), y, reduction="sum")
        (loss / (len(y) * len(micro_batches))).backward()
        running += loss.item() / len(y)
    nn.utils.clip_grad_norm_(list(ddp_model.parameters()), max_norm, foreach=False)
    optimizer.step()
    mean = torch.tensor(running / len(micro_batches), dtype=torch.float64)
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


WRONG = """
== solution
clears_each_time, only-last: zero_grad() stands where every training loop has it (FunASR#3472, NeMo
Automodel#3530: one micro-batch counts)
-         (loss / len(micro_batches)).backward()
+         optimizer.zero_grad()
+         (loss / len(micro_batches)).backward()
all_inside, stays-local: the whole loop is put into no_sync
-     one(*last)
+     with ddp_model.no_sync():
+         one(*last)
every_one, syncs-each: the accumulation loop of one process
~     with ddp_model.no_sync(): =>     if True:
never_clears, only-left-over: tried in a fresh model's first step
~     optimizer.zero_grad() =>
"""
