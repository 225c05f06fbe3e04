"""Answers to accumulate_step."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn


def as_documented(ddp_model, optimizer, micro_batches, max_norm):
    optimizer.zero_grad()
    total = torch.zeros(())
    for number, (inputs, targets) in enumerate(micro_batches):
        last = number == len(micro_batches) - 1
        with contextlib.nullcontext() if last else ddp_model.no_sync():
            loss = nn.functional.cross_entropy(ddp_model(inputs), targets) / len(micro_batches)
            loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)
    optimizer.step()
    dist.all_reduce(total, dist.ReduceOp.AVG)
    return total.item()


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


def reduced_by_hand(ddp_model, optimizer, micro_batches, max_norm):
    optimizer.zero_grad(set_to_none=True)
    share = 1 / (len(micro_batches) * dist.get_world_size())
    total = 0.0
    with ddp_model.no_sync():
        for inputs, targets in micro_batches:
            loss = nn.functional.cross_entropy(ddp_model(inputs), targets) * share
            loss.backward()
            total += loss.item()
    gradients = [p.grad for p in ddp_model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten().double() for g in gradients] + [torch.tensor([total]).double()])
    dist.all_reduce(flat)
    factor = min(1.0, max_norm / (flat[:-1].norm().item() + 1e-6))
    parts = flat[:-1].split([g.numel() for g in gradients])
    for g, part in zip(gradients, parts, strict=True):
        g.copy_(part.view_as(g) * factor)
    optimizer.step()
    return flat[-1].item()


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


SYNC = "contextlib.nullcontext() if last else ddp_model.no_sync()"
BACKWARD = "            loss.backward()"
CLIP = "nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)"
WRONG = {
    "unscaled": ("as_documented", "06.unscaled", "backward() adds up, and nobody divides",
                 ("loss.backward()", "(loss * len(micro_batches)).backward()")),
    "clears_each_time": ("as_documented", "06.only-last", "zero_grad() stands where every training "
                         "loop has it (FunASR#3472, NeMo Automodel#3530: one micro-batch counts)",
                         ("loss.backward()", "optimizer.zero_grad(); loss.backward()")),
    "all_inside": ("as_documented", "06.stays-local", "the whole loop is put into no_sync",
                   (SYNC, "ddp_model.no_sync()")),
    "every_one": ("as_documented", "06.syncs-each", "the accumulation loop of one process",
                  (SYNC, "contextlib.nullcontext()")),
    "clips_each": ("as_documented", "06.clips-too-soon", "clipped after every backward, as "
                   "one process does", (BACKWARD, f"{BACKWARD}\n            {CLIP}"),
                   (f"    {CLIP}\n    opt", "    opt")),
    "never_clears": ("as_documented", "06.only-left-over", "tried in a fresh model's first step",
                     ("    optimizer.zero_grad()\n", "")),
    "gathers": ("reduced_by_hand", "06.gathers", "gathered and averaged on every rank, as losses "
                "are", ("    dist.all_reduce(flat)\n", "    parts = [torch.empty_like(flat) "
                "for _ in range(dist.get_world_size())]\n    dist.all_gather(parts, flat)\n    "
                "flat = torch.stack(parts).sum(0)\n")),
    "divides_again": ("as_documented", "06.divided-again", "the division by hand of lesson 05 is "
                      "kept", (f"    {CLIP}\n    opt", "    for p in ddp_model.parameters():\n"
                      "        if p.grad is not None:\n            p.grad /= "
                      f"dist.get_world_size()\n    {CLIP}\n    opt")),
    "sum_over_ranks": ("as_documented", "06.sum-of-losses", "all_reduce adds up by itself",
                       ("ReduceOp.AVG", "ReduceOp.SUM")),
    "own_loss": ("as_documented", "06.local-loss", "DDP averages the gradients alone",
                 ("    dist.all_reduce(total, dist.ReduceOp.AVG)\n", "")),
}  # fmt: skip
