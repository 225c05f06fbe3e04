"""Answers to MiniDDP."""

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn


class Countdown(nn.Module):
    def __init__(self, module, cap_bytes):
        super().__init__()
        self.module, self.syncs, self.left, self.works = module, True, [], []
        for t in [*module.parameters(), *module.buffers()]:
            dist.broadcast(t.detach(), 0)
        self.buckets, room = [], 0
        for p in [p for p in module.parameters() if p.requires_grad][::-1]:
            if room <= 0 or self.buckets[-1][-1].dtype != p.dtype:
                self.buckets.append([])
                room = cap_bytes
            self.buckets[-1].append(p)
            room -= p.nbytes
            number = len(self.buckets) - 1
            p.register_post_accumulate_grad_hook(lambda _, b=number: self.arrived(b))

    def forward(self, *args, **kwargs):
        if torch.is_grad_enabled():
            self.left = [len(b) for b in self.buckets] if self.syncs else []
        return self.module(*args, **kwargs)

    def arrived(self, number):
        if self.left:
            self.left[number] -= 1
            while len(self.works) < len(self.left) and not self.left[len(self.works)]:
                self.issue(self.buckets[len(self.works)])

    def issue(self, bucket):
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
        flat = torch.cat([g.flatten() for g in grads]) / dist.get_world_size()
        self.works.append((dist.all_reduce(flat, async_op=True), flat))

    def finish(self):
        for bucket in self.buckets[len(self.works) :] if self.left else ():
            self.issue(bucket)
        for bucket, (work, flat) in zip(self.buckets, self.works, strict=False):
            work.wait()
            for p, mean in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                p.grad = mean.view_as(p)
        self.left, self.works = [], []

    @contextmanager
    def no_sync(self):
        before, self.syncs = self.syncs, False
        try:
            yield
        finally:
            self.syncs = before


class Gathered(nn.Module):
    def __init__(self, module, cap_bytes):
        super().__init__()
        self.module, self.here, self.works, self.quiet = module, None, [], 0
        for t in (*module.parameters(), *module.buffers()):
            dist.broadcast(t.data, src=0)
        self.buckets = []
        for p in reversed([p for p in module.parameters() if p.requires_grad]):
            p.register_post_accumulate_grad_hook(self.hook)
            last = self.buckets[-1] if self.buckets else []
            if not last or last[0].dtype != p.dtype or sum(q.nbytes for q in last) >= cap_bytes:
                self.buckets.append(last := [])
            last.append(p)

    def forward(self, *args, **kwargs):
        if torch.is_grad_enabled():
            self.here = None if self.quiet else set()
        return self.module(*args, **kwargs)

    def hook(self, p):
        if self.here is not None:
            self.here.add(p)
            self.issue(lambda bucket: self.here.issuperset(bucket))

    def issue(self, may_go):
        for bucket in self.buckets[len(self.works) :]:
            if not may_go(bucket):
                break
            for p in bucket:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            flat = nn.utils.parameters_to_vector([p.grad for p in bucket])
            self.works.append((dist.all_reduce(flat, dist.ReduceOp.AVG, async_op=True), flat))

    def finish(self):
        if self.here is None:
            return
        self.issue(lambda bucket: True)
        for bucket, (work, flat) in zip(self.buckets, self.works, strict=False):
            work.wait()
            nn.utils.vector_to_parameters(flat, [p.grad for p in bucket])
        self.here, self.works = None, []

    @contextmanager
    def no_sync(self):
        self.quiet += 1
        yield
        self.quiet -= 1


WRONG = """
== Countdown
no_zeros, no-zeros: what has no gradient is left out of the bucket
- [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
+ [p.grad for p in bucket if p.grad is not None]
torchs_own, torchs-own: a few lines around what is there already
          super().__init__()
+         self.ddp = nn.parallel.DistributedDataParallel(module, find_unused_parameters=True)
~ for p in [p for p in module.parameters() if p.requires_grad][::-1]: => for p in []:
-         return self.module(*args, **kwargs)
+         self.ddp.require_backward_grad_sync = self.syncs
+         return self.ddp(*args, **kwargs)
waits_in_the_hook, waits-in-hook: what is started is waited for
          self.works.append((dist.all_reduce(flat, async_op=True), flat))
+         self.works[-1][0].wait()
issues_what_is_full, only-without-gradient-or-two-swapped: what is full may go, one thinks
(pytorch#72843)
-             while len(self.works) < len(self.left) and not self.left[len(self.works)]
+             if not self.left[number]
~ self.issue(self.buckets[len(self.works)]) => self.issue(self.buckets[number])
looks_at_its_own_bucket, late: a full bucket is looked at once
-             while len(self.works) < len(self.left) and not self.left[len(self.works)]
+             if number == len(self.works) and not self.left[number]
in_forward_order, forward-order: parameters() is in this order
- [p for p in module.parameters() if p.requires_grad][::-1]
+ [p for p in module.parameters() if p.requires_grad]
tied_twice, only-a-shared-weight: both names are visited (DeepSpeed#684)
- [p for p in module.parameters() if p.requires_grad][::-1]
+ [p for _, p in module.named_parameters(remove_duplicate=False) if p.requires_grad][::-1]
averages_the_parameter, parameter: the hook is given the parameter
~ else p.grad for p in bucket => else p.detach() for p in bucket
== Gathered
never_flushed, order-by-rank: all parameters are used, one thinks
~         self.issue(lambda bucket: True) =>
after_backward, after-backward: finish() does it all
~             self.issue(lambda bucket: self.here.issuperset(bucket)) =>
params_alone_at_start, only-buffers: parameters are what trains
~ (*module.parameters(), *module.buffers()) => module.parameters()
"""
