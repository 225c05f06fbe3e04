"""Diagnosis: 05.moves-frozen

"Every parameter needs a gradient, or the ranks' calls differ": so the frozen ones get zeros, too.
Nothing is added to them, and all the same the optimizer now takes them for parameters that are
trained: weight decay shrinks them and old momentum pushes them on.
"""

from torch.nn.functional import cross_entropy


def train_step(model, optimizer, inputs, targets) -> float:
    total = torch.tensor(len(targets))
    dist.all_reduce(total)
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), targets, reduction="sum") / total
    loss.backward()
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
    optimizer.step()
    loss = loss.detach()
    dist.all_reduce(loss)
    return loss.item()
