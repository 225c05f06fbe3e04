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


def reduced_each_step(model, dataset, epochs, batch_size, seed):
    ddp = DistributedDataParallel(model)
    sampler = DistributedSampler(dataset, seed=seed)
    out = {"loss": [], "accuracy": []}
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        ddp.train()
        total = torch.zeros(2)
        with Join([ddp]):  # the shares are equally long, so nobody joins early
            for inputs, labels in DataLoader(dataset, batch_size, sampler=sampler):
                loss = nn.functional.cross_entropy(ddp(inputs), labels, reduction="sum")
                (loss / len(labels)).backward()
                with torch.no_grad():
                    for p in model.parameters():
                        p -= 0.5 * (0 if p.grad is None else p.grad)
                        p.grad = None
                total += torch.stack([loss.detach(), loss.new_tensor(len(labels))])
        dist.all_reduce(total)
        out["loss"].append(total[0] / total[1])
        ddp.eval()
        right = 0
        with torch.no_grad():
            for inputs, labels in DataLoader(dataset, 1):
                right += int(ddp(inputs).argmax() == labels)
        out["accuracy"].append(right / len(dataset))
    return out


LOADER = "DataLoader(dataset, batch_size, sampler=sampler)"
WRAPPER = "DistributedDataParallel(model)\n    optimizer"
BACKWARD = "            loss.backward()\n"
LOCAL = ("(sums[2] / sums[3]).item()", "right / len(labels)")
WRONG = {
    "plain_loader": (
        "counts_added_up",
        "06.whole-set",
        "the loader of one process",
        (LOADER, "DataLoader(dataset, batch_size, shuffle=True)"),
    ),
    "rank_0_reduces": (
        "counts_added_up",
        "06.mismatch",
        "only rank 0 is to report",
        ("        dist.all_reduce(sums)\n", "        if rank == 0: dist.all_reduce(sums)\n"),
    ),
    "share_by_hand": (
        "counts_added_up",
        "06.uneven-shares",
        "a slice for each rank, as for evaluation, and some slices are longer",
        (LOADER, "DataLoader(torch.utils.data.Subset(dataset, range(rank, len(dataset), n)), 1)"),
    ),
    "rank_0_evaluates_the_wrapper": (
        "rank_0_evaluates",
        "06.only-buffers",
        "what has been trained is evaluated; with buffers its forward pass communicates",
        ("(model(features)", "(ddp(features)"),
    ),
    "never_evaluates": (
        "counts_added_up",
        "06.only-dropout",
        "eval() is forgotten",
        ("        ddp.eval()\n", ""),
    ),
    "by_hand": (
        "counts_added_up",
        "06.by-hand",
        "the averaging of lesson 05, beside DDP",
        (
            BACKWARD,
            BACKWARD + "            for p in model.parameters():\n                "
            "if p.grad is not None: dist.all_reduce(p.grad); p.grad /= n\n",
        ),
    ),
    "a_copy": (
        "counts_added_up",
        "06.copy",
        "the caller's model is to stay as it is, as functions mostly leave their arguments",
        (WRAPPER, "DistributedDataParallel(__import__('copy').deepcopy(model))\n    optimizer"),
        ("(model(inputs)", "(ddp.module(inputs)"),
    ),
    "same_order_and_local": (
        "counts_added_up",
        "06.no-set-epoch",
        "two at once",
        ("        sampler.set_epoch(epoch)\n", ""),
        LOCAL,
    ),
    "mean_of_batches_and_local": (
        "counts_added_up",
        "06.local-accuracy",
        "two at once",
        ("[loss.item() * len(labels), len(labels)]", "[loss.item(), 1]"),
        LOCAL,
    ),
}
