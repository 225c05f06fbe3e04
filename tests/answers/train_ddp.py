"""Answers to train_ddp."""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from course_lib import device


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
== solution
plain_loader, whole-set: the loader of one process
~ sampler=order => shuffle=True
rank_0_reduces, mismatch: only rank 0 is to report
~         dist.all_reduce(counts) =>         if dist.get_rank() == 0: dist.all_reduce(counts)
share_by_hand, uneven-shares: a slice for each rank, as for evaluation, and some slices are longer
- DataLoader(dataset, batch_size, sampler=order)
+ DataLoader([*dataset][dist.get_rank() :: dist.get_world_size()], 1)
never_evaluates, only-dropout: eval() is forgotten
~         model.eval() =>
by_hand, by-hand: the averaging of lesson 05, beside DDP
              losses.mean().backward()
+             for p in model.parameters():
+                 if p.grad is not None: dist.all_reduce(p.grad); p.grad /= dist.get_world_size()
same_order, no-set-epoch: the shuffle needs the epoch, and nothing says so
~         order.set_epoch(epoch) =>
own_accuracy, local-accuracy: each rank counts its own part
~ append(right / len(dataset)) => append((model(inputs).argmax(1) == labels).float().mean().item())
== rank_0_evaluates
rank_0_evaluates_the_wrapper, only-buffers: what has been trained is evaluated; with buffers its
forward pass communicates
~ (model(features) => (ddp(features)
"""
