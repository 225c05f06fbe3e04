"""Answers to train_ddp."""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def counts_added_up(dataset, epochs, batch_size, seed):
    torch.manual_seed(seed)
    rank, n = dist.get_rank(), dist.get_world_size()
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.2), nn.Linear(32, 10))
    ddp = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    sampler = DistributedSampler(dataset, seed=seed)
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    out = {"loss": [], "accuracy": []}
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        sums = torch.zeros(4, dtype=torch.float64)
        ddp.train()
        for images, labels in loader:
            loss = nn.functional.cross_entropy(ddp(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums[:2] += torch.tensor([loss.item() * len(labels), len(labels)])
        ddp.eval()
        with torch.no_grad():
            images, labels = dataset[rank::n]
            right = (net(images).argmax(1) == labels).sum().item()
            sums[2:] += torch.tensor([right, len(labels)])
        dist.all_reduce(sums)
        schedule.step()
        out["loss"].append((sums[0] / sums[1]).item())
        out["accuracy"].append((sums[2] / sums[3]).item())
    return out


def rank_0_evaluates(dataset, epochs, batch_size, seed):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed + rank)  # DDP begins with the weights of rank 0
    model = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    pixels, digits = dataset.tensors
    history = {"accuracy": [], "loss": []}
    for epoch in range(epochs):
        source = torch.Generator().manual_seed(97 * seed + epoch)
        order = torch.randperm(len(dataset), generator=source)
        mine = iter(order.tensor_split(world_size)[rank].tolist())
        total = torch.zeros(2)
        with Join([model]):  # the shares may differ by one step
            while batch := list(itertools.islice(mine, batch_size)):
                loss = nn.functional.cross_entropy(model(2 * pixels[batch] - 1), digits[batch])
                loss.backward()
                optimizer.step()
                model.zero_grad(set_to_none=False)
                total += torch.tensor([loss.item() * len(batch), len(batch)])
        dist.all_reduce(total)
        accuracy = torch.zeros(())
        if rank == 0:
            with torch.inference_mode():
                for image, label in (dataset[i] for i in range(len(dataset))):
                    guess = model.module(2 * image[None] - 1).argmax()
                    accuracy += (guess == label) / len(dataset)
        dist.broadcast(accuracy, src=0)
        history["loss"].append((total[0] / total[1]).item())
        history["accuracy"].append(accuracy.item())
    return history


SAMPLER = "DistributedSampler(dataset, seed=seed)"
LOADER = "DataLoader(dataset, batch_size, sampler=sampler)"
REDUCE = "        dist.all_reduce(sums)\n"
CLEAR = "            optimizer.zero_grad()\n"
JOIN = "with Join([model]):  # the"
WRONG = {
    "no_zero_grad": ("counts_added_up", "06.no-zero-grad", "left out: nothing fails, and the loss "
                     "falls all the same", (CLEAR, "")),
    "zero_grad_by_epoch": ("counts_added_up", "06.no-zero-grad", "put beside set_epoch",
                           (CLEAR, ""),
                           ("        ddp.train()", "        optimizer.zero_grad(); ddp.train()")),
    "plain_loader": ("counts_added_up", "06.overlap", "the loader of one process",
                     (LOADER, "DataLoader(dataset, batch_size, shuffle=True)")),
    "seed_by_rank": ("counts_added_up", "06.overlap", "right for dropout, wrong for a sampler",
                     (SAMPLER, "DistributedSampler(dataset, seed=seed + rank)")),
    "no_set_epoch": ("counts_added_up", "06.no-set-epoch", "nothing fails without it; PyTorch's "
                     "page of DistributedSampler warns",
                     ("        sampler.set_epoch(epoch)\n", "")),
    "inner_model": ("counts_added_up", "06.not-averaged", "the inner model is called, and DDP "
                    "hears of no backward", ("ddp(images), labels", "net(images), labels")),
    "rank_0_reduces": ("counts_added_up", "06.mismatch", "only rank 0 is to report",
                       (REDUCE, "        if rank == 0: dist.all_reduce(sums)\n")),
    "no_join": ("rank_0_evaluates", "06.uneven-shares", "a share cut by hand, and no Join",
                (JOIN, "with Join([model], enable=False):  # the")),
    "dropout_on": ("counts_added_up", "06.training-mode", "eval() is forgotten",
                   ("        ddp.eval()\n", "")),
    "dropout_off": ("counts_added_up", "06.training-mode", "train() is forgotten, or stands before "
                    "the epochs", ("        ddp.train()\n", "")),
    "padding_counted": ("counts_added_up", "06.padding-counted", "evaluated on a sampler's share",
                        ("dataset[rank::n]", "dataset[list(DistributedSampler(dataset))]")),
    "local_accuracy": ("counts_added_up", "06.local-accuracy", "counts of one rank are divided",
                       ("(sums[2] / sums[3]).item()", "right / len(labels)")),
    "never_steps": ("counts_added_up", "06.never-steps", "step() is forgotten",
                    ("            optimizer.step()\n", "")),
    "by_hand": ("counts_added_up", "06.by-hand", "the averaging of lesson 05",
                ("DistributedDataParallel(net)", "net"), ("loss.backward()", "loss.backward()\n"
                 "            for p in net.parameters(): dist.all_reduce(p.grad); p.grad /= n")),
    "by_hand_in_no_sync": ("counts_added_up", "06.by-hand", "DDP is there, and the averaging of "
                           "lesson 05 does its work", ("            loss.backward()\n",
                           "            for p in net.parameters():\n                parts = "
                           "[torch.empty_like(p) for _ in range(n)]\n                "
                           "dist.all_gather(parts, p.grad)\n                p.grad = "
                           "torch.stack(parts).mean(0)\n"),
                           ("            loss = nn.functional.cross_entropy(ddp(images), labels)\n"
                            "            optimizer.zero_grad()\n",
                            "            optimizer.zero_grad()\n            with ddp.no_sync():\n"
                            "                loss = nn.functional.cross_entropy(ddp(images), "
                            "labels)\n                loss.backward()\n")),
    "mean_of_ranks": ("counts_added_up", "06.mean-of-ranks", "a mean over ranks of shares of "
                      "unequal size", ("torch.tensor([right, len(labels)])",
                                       "torch.tensor([right / len(labels), 1])")),
    "same_order_and_local": ("counts_added_up", "06.no-set-epoch", "two at once",
                             ("        sampler.set_epoch(epoch)\n", ""),
                             ("(sums[2] / sums[3]).item()", "right / len(labels)")),
}  # fmt: skip
