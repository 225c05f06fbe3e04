"""One reduction by hand, of float64: as many numbers as the gradients have, and the loss."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm: float) -> float:
    optimizer.zero_grad()
    trained = [p for p in ddp_model.parameters() if p.requires_grad]
    total = torch.zeros((), dtype=torch.float64, device=trained[0].device)
    with ddp_model.no_sync():
        for inputs, targets in micro_batches:
            loss = F.cross_entropy(ddp_model(inputs), targets) / len(micro_batches)
            loss.backward()
            total += loss.detach().double()
    flat = torch.cat([p.grad.reshape(-1).double() for p in trained] + [total.reshape(1)])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, part in zip(trained, flat[:-1].split([p.numel() for p in trained]), strict=True):
        p.grad.copy_(part.view(p.shape))
    torch.nn.utils.clip_grad_norm_(trained, max_norm)
    optimizer.step()
    return flat[-1].item()
