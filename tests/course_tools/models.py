"""Programs with PyTorch's own parallel modules, and by hand, as people write them, on real ranks.

Each pair is what one process computes and what a rank does. A rank's function takes the name of a
bug ("" is none) and returns ``gradients(…)`` of its model. Four ranks.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F

from course_lib import gradients

D, H, VOCAB, BATCH, LENGTH = 8, 12, 16, 8, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.RMSNorm(D), nn.Linear(D, H), nn.Linear(H, D)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def data():
    drawn = torch.Generator().manual_seed(1)
    x = torch.randn(BATCH, LENGTH, D, generator=drawn)
    return x, torch.randint(VOCAB, (BATCH, LENGTH), generator=drawn)


def stack(head=False):
    torch.manual_seed(0)
    more = [nn.RMSNorm(D), nn.Linear(D, VOCAB)] if head else []
    return nn.Sequential(Block(), Block(), *more)


def plain_whole():
    model = stack()
    model(data()[0]).square().mean().backward()
    return gradients(model)


def hybrid(bug=""):
    """fully_shard inside a node of two, replicated over two nodes."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("node", "inside"))
    model = stack()
    for block in (*model, model):
        fully_shard(block, mesh=mesh)
    x = data()[0].chunk(4)[dist.get_rank()]
    if bug == "each node trains alone":
        for each in model.modules():
            if hasattr(each, "set_requires_all_reduce"):
                each.set_requires_all_reduce(False, recurse=False)
    loss = model(x).square().mean()
    (loss / 2 if bug == "divided by the nodes, too" else loss).backward()
    return gradients(model)


def head_whole():
    model = stack(head=True)
    x, y = data()
    F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    return gradients(model)


def sequence_and_loss_parallel(bug=""):
    """Tensor and sequence parallelism, and a loss of logits that are cut by vocabulary."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    tp, model = mesh["tp"], stack(head=True)
    norm = {} if bug == "a norm outside of the plan" else {"2": SequenceParallel()}
    plan = {f"{i}.norm": SequenceParallel() for i in range(2)} | norm
    for i in range(2):
        plan[f"{i}.up"] = ColwiseParallel(input_layouts=Shard(1))
        plan[f"{i}.down"] = RowwiseParallel(output_layouts=Shard(1))
    head = ColwiseParallel(input_layouts=Shard(1), use_local_output=False)
    parallelize_module(model, tp, plan | {"3": head})
    for block in (*model[:2], model):
        fully_shard(block, mesh=mesh["dp"])
    x, y = (t.chunk(2)[mesh["dp"].get_local_rank()] for t in data())
    with loss_parallel():
        logits = model(x.chunk(2, 1)[tp.get_local_rank()])
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        (loss * 2 if bug == "loss times tp" else loss).backward()
    return gradients(model)
