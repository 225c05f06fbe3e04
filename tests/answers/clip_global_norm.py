"""Answers to clip_global_norm."""

import math

import torch
import torch.distributed as dist


def by_squares(params, max_norm):
    params = list(params)
    total = torch.zeros((), dtype=torch.float64)
    for p in params:
        if p.grad is not None and (p.sharded or dist.get_rank() == 0):
            total += p.grad.double().square().sum()
    dist.all_reduce(total)
    norm = total.sqrt()
    for p in params:
        if p.grad is not None:
            p.grad.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
    return norm.to(params[-1].dtype)


def by_shares(params, max_norm):
    params = list(params)
    there = [p for p in params if p.grad is not None]
    share = {True: 1.0, False: 1 / dist.get_world_size()}
    squares = (torch.linalg.vector_norm(p.grad, dtype=torch.float64).item() ** 2 * share[p.sharded]
               for p in there)  # fmt: skip
    mine = torch.tensor([math.fsum(squares)], dtype=torch.float64)
    dist.all_reduce(mine)
    norm = math.sqrt(mine.item())
    if norm > max_norm:
        for p in there:
            p.grad *= max_norm / norm
    return torch.tensor(norm, dtype=params[0].dtype)


WRONG = {
    "asks_nobody": ("by_squares", "13.own-norm", "torch's own function, piece by piece "
                    "(torchtitan#596)", ("    dist.all_reduce(total)\n", ""),
                    ("(p.sharded or dist.get_rank() == 0)", "True")),
    "all_count": ("by_squares", "13.counted-n-times", "what is on all ranks is summed, too "
                  "(DeepSpeed#8478)", (" and (p.sharded or dist.get_rank() == 0)", "")),
    "root_before": ("by_squares", "13.root-first", "norms are added up (torchtune#2420)",
                    (" and (p.sharded or dist.get_rank() == 0)", ""),
                    ("    dist.all_reduce(total)\n    norm = total.sqrt()\n",
                     "    norm = total.sqrt()\n    dist.all_reduce(norm)\n")),
    "none_is_no_tensor": ("by_squares", "13.none", "every parameter has a gradient, one thinks",
                          ("        if p.grad is not None:\n            p.grad.mul_",
                           "        if True:\n            p.grad.mul_")),
    "half_squares": ("by_squares", "13.overflows", "squares in the gradient's own dtype",
                     ("p.grad.double().square().sum()", "p.grad.square().sum()")),
    "one_by_one": ("by_squares", "13.calls", "each parameter is summed by itself",
                   (".square().sum()\n    dist.all_reduce(total)\n",
                    ".square().sum()\n"
                    "        dist.all_reduce(total)\n"
                    "        total /= 1 if p is params[-1] else dist.get_world_size()\n")),
    "new_gradients": ("by_shares", "13.replaced", "a product is a new tensor",
                      ("p.grad *= max_norm / norm", "p.grad = p.grad * max_norm / norm")),
    "generator_twice": ("by_squares", "13.generator", "params is a list, one thinks",
                        ("    params = list(params)\n", ""),
                        ("        if p.grad is not None and (",
                         "        dtype = p.dtype\n        if p.grad is not None and ("),
                        ("params[-1].dtype", "dtype")),
    "float64_norm": ("by_squares", "13.other-dtype", "a norm is a norm",
                     ("return norm.to(params[-1].dtype)", "return norm")),
    "clamp_turned_round": ("by_squares", "13.turned-round", "min and max are mixed up",
                           ("max=1.0", "min=1.0")),
    "pieces_alone": ("by_squares", "13.scales-a-part", "what is sharded is clipped",
                     ("        if p.grad is not None:\n            p.grad.mul_",
                      "        if p.grad is not None and p.sharded:\n            p.grad.mul_")),
    "each_element": ("by_squares", "13.each-element", "clipping is clamping (clip_grad_value_)",
                     ("p.grad.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))",
                      "p.grad.clamp_(-max_norm, max_norm)")),
}  # fmt: skip
