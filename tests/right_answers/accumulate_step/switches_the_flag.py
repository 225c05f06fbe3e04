"""What no_sync does, done by hand: the flag that it sets, read by DDP in the forward pass."""

from torch import nn


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm):
    optimizer.zero_grad()
    running = 0.0
    for i, (x, y) in enumerate(micro_batches, start=1):
        ddp_model.require_backward_grad_sync = i == len(micro_batches)
        loss = nn.functional.cross_entropy(ddp_model(x), y, reduction="sum")
        (loss / (len(y) * len(micro_batches))).backward()
        running += loss.item() / len(y)
    ddp_model.require_backward_grad_sync = True
    nn.utils.clip_grad_norm_(list(ddp_model.parameters()), max_norm, foreach=False)
    optimizer.step()
    mean = torch.tensor(running / len(micro_batches), dtype=torch.float64)
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()
