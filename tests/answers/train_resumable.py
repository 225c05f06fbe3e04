"""Answers to train_resumable."""

import os
import random

import numpy
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler


def skips(job, folder, until):
    path = os.path.join(folder, "state.pt")
    rank, n = dist.get_rank(), dist.get_world_size()

    def generators():
        kind, keys, *rest = numpy.random.get_state()
        return [torch.get_rng_state(), [kind, keys.tolist(), *rest], random.getstate()]

    def restore(states):
        torch.set_rng_state(states[0])
        numpy.random.set_state(tuple(states[1]))
        random.setstate(states[2])

    parts = {"model": job.model, "optimizer": job.optimizer, "scheduler": job.scheduler}
    step, saved = 0, None
    if os.path.exists(path):
        state = torch.load(path, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        step, saved = state["step"], state["generators"][rank]
    sampler = DistributedSampler(job.dataset, seed=0)
    loader = DataLoader(job.dataset, job.batch_size, sampler=sampler)
    losses = []
    job.model.train()
    while step < until:
        epoch, at = divmod(step, len(loader))
        sampler.set_epoch(epoch)
        if saved and at == 0:
            restore(saved)
        batches = iter(loader)
        for _ in range(at):
            next(batches)
        if saved and at > 0:
            restore(saved)
        saved = None
        for x, y in batches:
            loss = cross_entropy(job.model(x), y)
            job.optimizer.zero_grad()
            loss.backward()
            for p in job.model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= n
            job.optimizer.step()
            job.scheduler.step()
            losses.append(loss.item())
            step += 1
            every = [None] * n
            dist.all_gather_object(every, generators())
            if rank == 0:
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save(state | {"step": step, "generators": every}, path + ".tmp")
                os.replace(path + ".tmp", path)
            dist.barrier()
            if step == until:
                break
    return losses


def keeps_the_epochs_start(job, folder, until):
    """Saves the generators of the epoch's beginning, and those of now; the indices are cut."""
    path = os.path.join(folder, "state.pt")
    parts = [job.model, job.optimizer, job.scheduler]

    def now():
        state = numpy.random.get_state()
        return [torch.get_rng_state(), [state[0], state[1].tolist(), *state[2:]], random.getstate()]

    def back(then):
        torch.set_rng_state(then[0])
        numpy.random.set_state(tuple(then[1]))
        random.setstate(then[2])

    found = [None]
    if dist.get_rank() == 0 and os.path.exists(path):
        found = [torch.load(path, weights_only=True)]
    dist.broadcast_object_list(found, src=0)
    step, losses = 0, []
    if found[0]:
        step, states, every = found[0]
        for part, state in zip(parts, states, strict=True):
            part.load_state_dict(state)
        back(every[dist.get_rank()])
    indices = None
    while step < until:
        sampler = DistributedSampler(job.dataset, seed=0)
        per_epoch = -(-len(sampler) // job.batch_size)
        epoch, at = divmod(step, per_epoch)
        if at == 0:
            torch.empty((), dtype=torch.int64).random_()  # what iter(loader) draws
        sampler.set_epoch(epoch)
        indices = [*sampler][at * job.batch_size : (at + 1) * job.batch_size]
        rows = [job.dataset[i] for i in indices]
        x, y = torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])
        loss = cross_entropy(job.model(x), y)
        job.optimizer.zero_grad()
        loss.backward()
        for p in job.model.parameters():
            dist.all_reduce(p.grad, dist.ReduceOp.AVG)
        job.optimizer.step()
        job.scheduler.step()
        losses.append(float(loss))
        step += 1
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, now())
        if dist.get_rank() == 0:
            torch.save([step, [part.state_dict() for part in parts], every], path + ".new")
            os.replace(path + ".new", path)
    return losses


BEFORE = "        if saved and at == 0:\n            restore(saved)\n"
AFTER = "        if saved and at > 0:\n            restore(saved)\n"
WRONG = {
    "restores_after_iter": (
        "skips",
        "12.restored-too-late",
        "iter(loader) draws a seed; after it, all is as it was, one thinks",
        (BEFORE, ""),
        ("if saved and at > 0:", "if saved:"),
    ),
    "rank_0s": (
        "skips",
        "12.rank-0s-generators",
        "rank 0 writes what it has",
        ('state["generators"][rank]', 'state["generators"][0]'),
    ),
    "epoch_anew": (
        "skips",
        "12.epoch-anew",
        "it goes on with the epoch: entrenar#294, KempnerForge#51",
        ("        for _ in range(at):\n            next(batches)\n", ""),
    ),
    "scheduler_forgotten": (
        "skips",
        "12.no-schedule",
        "the optimizer has the learning rate, one thinks",
        ('"optimizer": job.optimizer, "scheduler": job.scheduler}', '"optimizer": job.optimizer}'),
    ),
    "optimizer_forgotten": (
        "skips",
        "12.no-momentum",
        "the weights are what counts",
        ('"optimizer": job.optimizer, ', ""),
    ),
    "steps_more": (
        "skips",
        "12.until-more",
        "train for so many steps",
        ("    losses = []\n", "    losses = []\n    until += step\n"),
    ),
    "all_write": (
        "skips",
        "12.many-writers",
        "no rank is asked who it is",
        ("            if rank == 0:", "            if True:"),
    ),
    "never_loads": (
        "skips",
        "12.begins-anew",
        "another name than the one that was written",
        ("    if os.path.exists(path):", "    if os.path.exists(path + '.pt'):"),
    ),
    "onto_the_path": (
        "skips",
        "12.in-place",
        "a save is one call",
        ('path + ".tmp")\n                os.replace(path + ".tmp", path)', "path)"),
    ),
    "numpys_array": (
        "skips",
        "12.numpys-array",
        "get_state() is saved as it comes",
        ("keys.tolist()", "keys"),
    ),
    "number_of_the_step_made": (
        "skips",
        "12.step-behind",
        "the step that the state belongs to is saved with it",
        ('{"step": step, ', '{"step": step - 1, '),
    ),
    "epoch_at_its_end": (
        "skips",
        "12.epoch-behind",
        "the place is (epoch, batch), and an epoch's last batch belongs to it",
        ("set_epoch(epoch)", "set_epoch(epoch - bool(saved and epoch and at == 0))"),
    ),
}
