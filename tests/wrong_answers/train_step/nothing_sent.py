"""Diagnosis: 05.nothing-sent

The step of one process, on each of them.
"""

from torch.nn.functional import cross_entropy


def train_step(model, optimizer, inputs, targets) -> float:
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), targets, reduction="sum") / max(1, len(targets))
    loss.backward()
    optimizer.step()
    return loss.item()
