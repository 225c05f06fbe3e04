"""What torch computes on GPUs only, computed on the CPU: SyncBatchNorm and sharded attention.

Each function takes what torch's of the same name takes; placement.py calls it in its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard


def _sum(x: Tensor) -> Tensor:
    """The sum over all but the channels, which are the second dimension."""
    return x.transpose(0, 1).flatten(1).sum(1)


def _per_channel(x: Tensor, like: Tensor) -> Tensor:
    return x.view(1, -1, *[1] * (like.dim() - 2))


def batch_norm_stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and 1/√(variance + eps) of each channel."""
    count = x.numel() / x.shape[1]
    mean = _sum(x.float()) / count
    variance = _sum((x.float() - _per_channel(mean, x)).square()) / count
    return mean, (variance + eps).rsqrt()


def batch_norm_gather_stats_with_counts(
    x: Tensor, means: Tensor, inverses: Tensor, *more: Any
) -> tuple[Tensor, Tensor]:
    """Mean and 1/√(variance + eps) over all ranks, whose own are the rows of ``means`` and
    ``inverses``, for ``counts`` entries each. Updates the running averages.
    """
    running_mean, running_var, momentum, eps, counts = more
    share = (counts.view(-1, 1) / counts.sum()).to(means.dtype)
    mean = (share * means).sum(0)
    variance = (share * (inverses**-2 - eps + (means - mean).square())).sum(0)
    if running_mean is not None:
        total = counts.sum()
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_((variance * total / (total - 1)).to(running_var.dtype), momentum)
    return mean, (variance + eps).rsqrt()


def batch_norm_elemt(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, inverse: Tensor, eps: float
) -> Tensor:
    out = (x.float() - _per_channel(mean, x)) * _per_channel(inverse, x)
    if weight is not None and bias is not None:
        out = out * _per_channel(weight, x) + _per_channel(bias, x)
    return out.to(x.dtype)


def batch_norm_backward_reduce(
    grad: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor | None, *_: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Per channel: Σ dy, Σ dy·(x − mean), and the gradients of weight and bias."""
    dy = grad.float()
    total = _sum(dy)
    with_x = _sum(dy * (x.float() - _per_channel(mean, x)))
    kind = total.dtype if weight is None else weight.dtype
    return total, with_x, (with_x * inverse).to(kind), total.to(kind)


def batch_norm_backward_elemt(
    grad: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor | None, *sums: Tensor
) -> Tensor:
    """The gradient of x, from sums over all ranks."""
    total, with_x, counts = sums
    count = counts.sum()
    centred = (x.float() - _per_channel(mean, x)) * _per_channel(
        inverse.square() * with_x / count, x
    )
    scale = inverse if weight is None else inverse * weight
    dx = (grad.float() - _per_channel(total / count, x) - centred) * _per_channel(scale, x)
    return dx.to(x.dtype)


def attend(
    attention: Callable[..., Tensor],
    query: DTensor,
    key: DTensor,
    value: DTensor,
    *args: Any,
    **how: Any,
) -> Tensor:
    """Attention of DTensors, which torch shards on GPUs only: each rank's own rows and heads.

    What is sharded otherwise, or unevenly, is made whole first.
    """
    mesh = query.device_mesh
    kept = [p for p in (Shard(0), Shard(1)) if all(_is_even(t, p, query) for t in (query, key))]
    placements = [p if p in kept else Replicate() for p in query.placements]
    parts = [t.redistribute(mesh, placements).to_local() for t in (query, key, value)]
    out = attention(*parts, *map(_to_local, args), **{k: _to_local(v) for k, v in how.items()})
    return DTensor.from_local(out, mesh, placements, run_check=False)


def _is_even(t: DTensor, cut: Shard, query: DTensor) -> bool:
    """Whether all ranks hold equally long parts of ``t``, where it is cut as ``query`` is."""
    sizes = (query.device_mesh.size(i) for i, p in enumerate(query.placements) if p == cut)
    return t.shape[cut.dim] % math.prod(sizes) == 0


def _to_local(given: Any) -> Any:
    return given.to_local() if isinstance(given, DTensor) else given


ONLY_ON_GPUS: dict[Any, Callable[..., Any]] = {
    torch.batch_norm_stats: batch_norm_stats,
    torch.batch_norm_gather_stats_with_counts: batch_norm_gather_stats_with_counts,
    torch.batch_norm_elemt: batch_norm_elemt,
    torch.batch_norm_backward_reduce: batch_norm_backward_reduce,
    torch.batch_norm_backward_elemt: batch_norm_backward_elemt,
}
