"""Answers to train_step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy


def gathered_batch(model, optimizer, inputs, targets):
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, (inputs, targets))
    optimizer.zero_grad()
    x, y = (torch.cat(parts) for parts in zip(*every, strict=True))
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def in_hooks(model, optimizer, inputs, targets):
    facts = torch.tensor([0.0, len(targets)], dtype=torch.float64)
    model.zero_grad()
    hooks = [
        p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))
        for p in model.parameters()
        if p.requires_grad
    ]
    loss = cross_entropy(model(inputs), targets, reduction="sum")
    loss.backward()
    facts[0] = loss.item()
    dist.all_reduce(facts)
    for hook in hooks:
        hook.remove()
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= facts[1].item()
    optimizer.step()
    return (facts[0] / facts[1]).item()


WRONG = """
== solution
mean_of_means, mean-of-means: as DistributedDataParallel does: a batch of 1 counts as much as one of
32
~ , reduction="sum") / samples => , reduction="sum") / max(1, len(targets)) / dist.get_world_size()
empty_nan, only-an-empty-batch: the mean of an empty batch is NaN, and zero times NaN is NaN
~ , reduction="sum") / => ) * len(targets) /
"""
