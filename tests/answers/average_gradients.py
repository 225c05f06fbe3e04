"""Answers to average_gradients."""

import torch
import torch.distributed as dist
from torch import nn


def one_bucket(model):
    trained = [p for p in model.parameters() if p.requires_grad]
    for p in trained:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    flat = torch.cat([torch.zeros(1).double(), *(p.grad.flatten().double() for p in trained)])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, mean in zip(trained, flat[1:].split([p.numel() for p in trained]), strict=True):
        p.grad.copy_(mean.view(p.shape))


def gathered(model):
    n = dist.get_world_size()
    for p in (p for p in model.parameters() if p.requires_grad):
        mine = torch.zeros_like(p).contiguous() if p.grad is None else p.grad.contiguous()
        theirs = [torch.empty_like(mine) for _ in range(n)]
        dist.all_gather(theirs, mine)
        mean = torch.stack([t.double() for t in theirs]).mean(0)
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        p.grad.copy_(mean)


WRONG = """
== solution
weights, averages-weights: a hook gets the parameter for the gradient (picotron#39); plain SGD hides
it
~ dist.all_reduce(parameter.grad) => dist.all_reduce(parameter.data)
~ parameter.grad /= dist.get_world_size() => parameter.data /= dist.get_world_size()
skips_none, only-without-gradient: a None is passed over, and its rank misses the call
~ parameter.grad = torch.zeros_like(parameter) => continue
replaces, replaced: grad = grad / n makes a new tensor
~ parameter.grad /= dist.get_world_size() => parameter.grad = parameter.grad / dist.get_world_size()
== gathered
float32_zeros, only-float64: zeros are zeros, whatever their dtype
~ torch.zeros_like(p).contiguous() => torch.zeros(p.shape)
== one_bucket
not_copied_back, left-unwritten: torch.cat copies: the bucket is averaged, and nobody copies it back
~ p.grad.copy_(mean.view(p.shape)) => pass
"""
