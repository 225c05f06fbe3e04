"""Small parallel programs, right ones, each with knobs that make it wrong as public reports tell.

Each program is a pair: what one process computes, and what a rank does. A rank's function takes the
name of a bug ("" is none) and returns its gradients by name. Sums and means are chosen so that a
right program's pieces are those of one process.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F

D, H, V = 5, 12, 12
TOKENS = 12


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def leaves(dtype: torch.dtype, **tensors: torch.Tensor) -> dict[str, torch.Tensor]:
    return {name: t.to(dtype).clone().requires_grad_() for name, t in tensors.items()}


def grads(p: dict[str, torch.Tensor]) -> dict[str, torch.Tensor | None]:
    return {name: t.grad for name, t in p.items()}


def summed(t: torch.Tensor) -> torch.Tensor:
    out = t.contiguous().clone()
    dist.all_reduce(out)
    return out


class Copied(torch.autograd.Function):
    """f: the input forward, the sum of the gradients backward."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return summed(g)


class Summed(torch.autograd.Function):
    """g: the sum forward, the gradient backward."""

    @staticmethod
    def forward(ctx, x):
        return summed(x)

    @staticmethod
    def backward(ctx, g):
        return g


WEIGHTS = {
    "norm": draw(D) + 2,
    "w1": draw(H, D),
    "b1": draw(H) / 2,
    "w2": draw(D, H) / 3,
    "b2": draw(D),
}
X = draw(TOKENS, D)


def mlp(p, x):
    return F.linear(F.gelu(F.linear(x * p["norm"], p["w1"], p["b1"])), p["w2"], p["b2"])


def mlp_whole(dtype: torch.dtype = torch.float32):
    p = leaves(dtype, **WEIGHTS)
    mlp(p, X.to(dtype)).square().sum().backward()
    return grads(p)


def tensor_parallel(bug: str = "", dtype: torch.dtype = torch.float32):
    """The first layer cut into rows, the second into columns."""
    rank, n = dist.get_rank(), dist.get_world_size()
    cut = {"w1": 0, "b1": 0, "w2": 1}
    own = {
        name: t.tensor_split(n, cut[name])[rank] if name in cut else t
        for name, t in WEIGHTS.items()
    }
    p = leaves(dtype, **own)
    x = X.to(dtype) * p["norm"]
    h = F.gelu(F.linear(x if bug == "no f" else Copied.apply(x), p["w1"], p["b1"]))
    y = F.linear(h, p["w2"])
    y = Summed.apply(y + p["b2"] / n) if bug == "b2 over n" else Summed.apply(y) + p["b2"]
    loss = y.square().sum()
    (loss * n if bug == "loss times n" else loss).backward()
    if bug == "blocks of the next rank":
        all_of = [torch.empty_like(p["w1"].grad) for _ in range(n)]
        dist.all_gather(all_of, p["w1"].grad)
        p["w1"].grad = all_of[(rank + 1) % n]
    if bug == "detached":
        p["norm"].grad = None
    turned = {"w1": p["w1"].grad.t()} if bug == "transposed" else {}
    return grads(p) | turned


def data_parallel(bug: str = "", dtype: torch.dtype = torch.float32):
    """Every rank has rows of the batch; uneven ones, and for sequences the same program."""
    rank, n = dist.get_rank(), dist.get_world_size()
    sizes = [TOKENS - n + 1] + [1] * (n - 1) if "uneven" in bug else None
    mine = (X.split(sizes) if sizes else X.tensor_split(n))[rank].to(dtype)
    p = leaves(dtype, **WEIGHTS)
    loss = mlp(p, mine).square().sum()
    (loss / len(mine) * TOKENS / n if "mean of means" in bug else loss).backward()
    for name, t in p.items():
        if bug == f"{name} not reduced" or bug == "never reduced":
            continue
        if bug == "reduced to rank 0 alone":
            dist.reduce(t.grad, dst=0)
            t.grad *= rank == 0
            continue
        t.grad = summed(t.grad)
        if bug == "reduced twice":
            t.grad = summed(t.grad)
        if bug == "last rank divides" and rank == n - 1:
            t.grad /= n
    return grads(p)


def sharded(bug: str = "", dtype: torch.dtype = torch.float32):
    """Gradients of data parallel ranks, each reduced into flat shards that zeros pad."""
    rank, n = dist.get_rank(), dist.get_world_size()
    found = data_parallel("never reduced", dtype)
    out = {}
    for name, g in found.items():
        size = -(-g.numel() // n)
        flat = F.pad(g.flatten(), (0, size * n - g.numel()))
        total = flat if bug == "scattered, not summed" and name == "w1" else summed(flat)
        at = (rank + (bug == "shard of the next rank" and name == "w2")) % n
        out[name] = total[at * size : (at + 1) * size].clone()
    return out


def tied_whole(dtype: torch.dtype = torch.float32):
    p = leaves(dtype, emb=draw(V, D))
    ids = torch.arange(TOKENS) % 5
    F.linear(p["emb"][ids].tanh(), p["emb"]).square().sum().backward()
    return grads(p)


def tied(bug: str = "", dtype: torch.dtype = torch.float32):
    """A pipeline whose first and last stage share one embedding; the middle has none."""
    rank, n = dist.get_rank(), dist.get_world_size()
    p = leaves(dtype, emb=draw(V, D))
    ids = torch.arange(TOKENS) % 5
    first = p["emb"][ids].tanh()
    here = first.detach().requires_grad_()
    F.linear(here, p["emb"]).square().sum().backward()
    head, at_boundary = p["emb"].grad, here.grad
    p["emb"].grad = None
    first.backward(at_boundary)
    embedding = p["emb"].grad
    own = head if rank == n - 1 else embedding if rank == 0 else torch.zeros_like(head)
    total = summed(own)
    if 0 < rank < n - 1:
        return {}
    return {"emb": {"ends not summed": own, "the head's share alone": head}.get(bug, total)}
