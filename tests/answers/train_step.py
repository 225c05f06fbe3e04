"""Answers to train_step."""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def sum_over_total(model, optimizer, inputs, targets):
    total = torch.tensor(len(targets))
    dist.all_reduce(total)
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), targets, reduction="sum") / total
    loss.backward()
    for p in model.parameters():
        if p.requires_grad:
            dist.all_reduce(p.grad)
    optimizer.step()
    loss = loss.detach()
    dist.all_reduce(loss)
    return loss.item()


def weighted_means(model, optimizer, inputs, targets):
    sizes = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([float(len(targets))]))
    optimizer.zero_grad()
    loss = torch.zeros(())
    if len(targets):
        loss = cross_entropy(model(inputs), targets) * len(targets) / sum(sizes).item()
        loss.backward()
    for p in (p for p in model.parameters() if p.requires_grad):
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(p.grad)
    optimizer.step()
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, loss.item())
    return float(sum(every))


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
== sum_over_total
mean_of_means, mean-of-means: as DistributedDataParallel does: a batch of 1 counts as much as one of
32
~ , reduction="sum") / total => , reduction="sum") / max(1, len(targets)) / dist.get_world_size()
empty_nan, only-an-empty-batch: the mean of an empty batch is NaN, and zero times NaN is NaN
~ , reduction="sum") / => ) * len(targets) /
rank_0_asks, not-everybody: only rank 0 logs the loss
~     dist.all_reduce(loss) =>     if dist.get_rank() == 0: dist.all_reduce(loss)
another_order, mismatch: odd ranks go through the parameters backwards
~ in model.parameters() => in list(model.parameters())[:: 1 - dist.get_rank() % 2 * 2]
steps_first, steps-first: two lines in the wrong order
~     optimizer.step() =>
      loss.backward()
+     optimizer.step()
== in_hooks
ranks_for_samples, rank-count: average_gradients as it is
~ p.grad /= facts[1].item() => p.grad /= dist.get_world_size()
"""
