"""Answers to MiniDDP."""

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn


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
== solution
no_zeros, no-zeros: what has no gradient is left out of the bucket
-         gradients = [torch.zeros_like(w) if w.grad is None else w.grad
-                      for w in self.plan[len(self.sent)]]
+         gradients = [w.grad for w in self.plan[len(self.sent)] if w.grad is not None]
torchs_own, torchs-own: a few lines around what is there already
          super().__init__()
+         self.ddp = nn.parallel.DistributedDataParallel(module, find_unused_parameters=True)
~ for weight in reversed([w for w in module.parameters() if w.requires_grad]): => for weight in []:
-         return self.module(*args, **kwargs)
+         self.ddp.require_backward_grad_sync = not self.quiet
+         return self.ddp(*args, **kwargs)
waits_in_the_hook, waits-in-hook: what is started is waited for
- dist.ReduceOp.AVG, async_op=True)))
+ dist.ReduceOp.AVG, async_op=True)))
+         self.sent[-1][1].wait()
looks_at_its_own_bucket, late: a full bucket is looked at once
- while self.missing and len(self.sent) < len(self.plan) and not
+ if self.missing and len(self.sent) < len(self.plan) and not
in_forward_order, forward-order: parameters() is in this order
- reversed([w for w in module.parameters() if w.requires_grad])
+ [w for w in module.parameters() if w.requires_grad]
tied_twice, only-a-shared-weight: both names are visited (DeepSpeed#684)
-         for weight in reversed([w for w in module.parameters() if w.requires_grad]):
+         named = module.named_parameters(remove_duplicate=False)
+         for weight in reversed([w for _, w in named if w.requires_grad]):
averages_the_parameter, parameter: the hook is given the parameter
~ else w.grad => else w.detach()
== Gathered
never_flushed, order-by-rank: all parameters are used, one thinks
~         self.issue(lambda bucket: True) =>
after_backward, after-backward: finish() does it all
~             self.issue(lambda bucket: self.here.issuperset(bucket)) =>
params_alone_at_start, only-buffers: parameters are what trains
~ (*module.parameters(), *module.buffers()) => module.parameters()
"""
