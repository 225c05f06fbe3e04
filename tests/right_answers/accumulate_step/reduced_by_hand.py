"""Everything inside no_sync, then one flat all_reduce by hand, and the norm by hand, too."""

from torch import nn


def accumulate_step(ddp_model, optimizer, micro_batches, max_norm):
    optimizer.zero_grad(set_to_none=True)
    share = 1 / (len(micro_batches) * dist.get_world_size())
    total = 0.0
    with ddp_model.no_sync():
        for inputs, targets in micro_batches:
            loss = nn.functional.cross_entropy(ddp_model(inputs), targets) * share
            loss.backward()
            total += loss.item()
    gradients = [p.grad for p in ddp_model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in gradients] + [gradients[0].new_tensor([total])])
    dist.all_reduce(flat)
    norm = flat[:-1].norm().item()
    start = 0
    for g in gradients:
        g.copy_(flat[start : start + g.numel()].view_as(g))
        g.mul_(min(1.0, max_norm / (norm + 1e-6)))
        start += g.numel()
    optimizer.step()
    return flat[-1].item()
