"""What torch computes on GPUs only, computed on the CPU: SyncBatchNorm and sharded attention.

Each function takes what torch's of the same name takes; placement.py calls it in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


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


def attend(attention: Callable[..., Tensor], q: DTensor, *args: Any, **how: Any) -> Tensor:
    """Attention of DTensors, which torch shards on GPUs only: each rank's own heads and rows."""
    parts = [t.to_local() if isinstance(t, DTensor) else t for t in (q, *args)]
    named = {k: t.to_local() if isinstance(t, DTensor) else t for k, t in how.items()}
    out = attention(*parts, **named)
    return DTensor.from_local(out, q.device_mesh, q.placements, run_check=False)


ONLY_ON_GPUS: dict[Any, Callable[..., Any]] = {
    torch.batch_norm_stats: batch_norm_stats,
    torch.batch_norm_gather_stats_with_counts: batch_norm_gather_stats_with_counts,
    torch.batch_norm_elemt: batch_norm_elemt,
    torch.batch_norm_backward_reduce: batch_norm_backward_reduce,
    torch.batch_norm_backward_elemt: batch_norm_backward_elemt,
}
