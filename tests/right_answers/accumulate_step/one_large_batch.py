"""The micro-batches laid together: one forward, one backward."""

from torch import nn


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm):
    inputs = torch.cat([x for x, _ in micro_batches])
    targets = torch.cat([y for _, y in micro_batches])
    loss = nn.functional.cross_entropy(ddp_model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(ddp_model.parameters(), max_norm)
    optimizer.step()
    losses = [None] * dist.get_world_size()
    dist.all_gather_object(losses, loss.item())
    return sum(losses) / len(losses)
