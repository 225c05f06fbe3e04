"""Answers to train_resumable."""

import os
import random

import numpy
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler


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


WRONG = """
== solution
rank_0s, rank-0s-generators: rank 0 writes what it has
~ state["generators"][rank] => state["generators"][0]
all_write, many-writers: no rank is asked who it is
~             if rank == 0: =>             if True:
onto_the_path, in-place: a save is one call
- path + ".unfinished")
-                 os.replace(path + ".unfinished", path)
+ path)
numpys_array, numpys-array: get_state() is saved as it comes
~ keys.tolist() => keys
"""
