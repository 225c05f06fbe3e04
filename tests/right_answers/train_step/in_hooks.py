"""Each gradient is added up in a hook, while backward goes on."""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def train_step(model, optimizer, inputs, targets) -> float:
    total = torch.tensor([float(len(targets))])
    dist.all_reduce(total)
    optimizer.zero_grad()

    def add_up(parameter):
        dist.all_reduce(parameter.grad)

    hooks = [
        p.register_post_accumulate_grad_hook(add_up) for p in model.parameters() if p.requires_grad
    ]
    loss = cross_entropy(model(inputs), targets, reduction="sum") / total.item()
    loss.backward()
    for hook in hooks:
        hook.remove()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item()
