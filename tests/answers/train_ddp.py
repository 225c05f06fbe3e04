"""Answers to train_ddp."""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def counts_added_up(model, dataset, epochs, batch_size, seed):
    rank, n = dist.get_rank(), dist.get_world_size()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5)
    sampler = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    out = {"loss": [], "accuracy": []}
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        sums = torch.zeros(4, dtype=torch.float64)
        ddp.train()
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(ddp(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums[:2] += torch.tensor([loss.item() * len(labels), len(labels)])
        ddp.eval()
        with torch.no_grad():
            inputs, labels = dataset[rank::n]
            right = (model(inputs).argmax(1) == labels).sum().item()
            sums[2:] += torch.tensor([right, len(labels)])
        dist.all_reduce(sums)
        out["loss"].append((sums[0] / sums[1]).item())
        out["accuracy"].append((sums[2] / sums[3]).item())
    return out


def rank_0_evaluates(model, dataset, epochs, batch_size, seed):
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    sgd = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.5)
    sampler = DistributedSampler(dataset, dist.get_world_size(), dist.get_rank(), seed=seed)
    features, labels = dataset.tensors
    history = {"accuracy": [], "loss": []}
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        mine, losses = iter(list(sampler)), []
        model.train()
        while batch := list(itertools.islice(mine, batch_size)):
            each = nn.functional.cross_entropy(
                ddp(features[batch]), labels[batch], reduction="none"
            )
            each.mean().backward()
            sgd.step()
            model.zero_grad(set_to_none=False)
            losses += each.tolist()
        everyones = [None] * dist.get_world_size()
        dist.all_gather_object(everyones, losses)
        drawn = list(itertools.chain(*everyones))
        history["loss"].append(sum(drawn) / len(drawn))
        box = [None]
        if dist.get_rank() == 0:
            model.eval()
            with torch.inference_mode():
                box[0] = (model(features).argmax(-1) == labels).double().mean().item()
        dist.broadcast_object_list(box, src=0)
        history["accuracy"].append(box[0])
    return history


WRONG = """
== counts_added_up
plain_loader, whole-set: the loader of one process
~ DataLoader(dataset, batch_size, sampler=sampler) => DataLoader(dataset, batch_size, shuffle=True)
rank_0_reduces, mismatch: only rank 0 is to report
~         dist.all_reduce(sums) =>         if rank == 0: dist.all_reduce(sums)
share_by_hand, uneven-shares: a slice for each rank, as for evaluation, and some slices are longer
- DataLoader(dataset, batch_size, sampler=sampler)
+ DataLoader(torch.utils.data.Subset(dataset, range(rank, len(dataset), n)), 1)
never_evaluates, only-dropout: eval() is forgotten
~         ddp.eval() =>
by_hand, by-hand: the averaging of lesson 05, beside DDP
              loss.backward()
+             for p in model.parameters():
+                 if p.grad is not None: dist.all_reduce(p.grad); p.grad /= n
same_order, no-set-epoch: the shuffle needs the epoch, and nothing says so
~         sampler.set_epoch(epoch) =>
own_accuracy, local-accuracy: each rank counts its own part
~ (sums[2] / sums[3]).item() => right / len(labels)
== rank_0_evaluates
rank_0_evaluates_the_wrapper, only-buffers: what has been trained is evaluated; with buffers its
forward pass communicates
~ (model(features) => (ddp(features)
"""
