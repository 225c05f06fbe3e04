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


ISSUE = "self.works.append((dist.all_reduce(flat, async_op=True), flat))"
TRAINED = "[p for p in module.parameters() if p.requires_grad][::-1]"
WRAPPED = """
    def __init__(self, module, cap_bytes):
        super().__init__()
        self.ddp = nn.parallel.DistributedDataParallel(module, find_unused_parameters=True)

    def forward(self, *args, **kwargs):
        return self.ddp(*args, **kwargs)

    def finish(self):
        pass

    def no_sync(self):
        return self.ddp.no_sync()
"""
WRONG = {
    "no_zeros": ("Countdown", "10.no-zeros", "what has no gradient is left out of the bucket",
                 ("[torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]",
                  "[p.grad for p in bucket if p.grad is not None]")),
    "torchs_own": ("Countdown", "10.torchs-own", "a few lines around what is there already",
                   ("            self.syncs = before",
                    f"            self.syncs = before\n{WRAPPED}")),
    "waits_in_the_hook": ("Countdown", "10.waits-in-hook", "what is started is waited for",
                          (ISSUE, f"{ISSUE}\n        self.works[-1][0].wait()")),
    "issues_what_is_full": ("Countdown", "10.only-without-gradient-or-two-swapped", "what is full "
                            "may go, one thinks (pytorch#72843)",
                            ("while len(self.works) < len(self.left) and not self.left[len("
                             "self.works)]", "if not self.left[number]"),
                            ("self.issue(self.buckets[len(self.works)])",
                             "self.issue(self.buckets[number])")),
    "looks_at_its_own_bucket": ("Countdown", "10.late", "a full bucket is looked at once",
                                ("while len(self.works) < len(self.left) and not self.left[len("
                                 "self.works)]", "if number == len(self.works) and not "
                                 "self.left[number]")),
    "counts_on": ("Countdown", "10.only-with-all-layers", "each bucket fills, one thinks",
                  ("self.left = [len(b) for b in self.buckets] if self.syncs else []",
                   "self.left = (self.left or [len(b) for b in self.buckets]) if self.syncs "
                   "else []"),
                  ("        self.left, self.works = [], []\n\n    @context",
                   "        self.left = [n or len(b) for n, b in zip(self.left, self.buckets)]\n"
                   "        self.works = []\n\n    @context")),
    "a_bucket_for_each_dtype": ("Gathered", "10.only-another-dtype", "a bucket may wait for more",
                                ("            last = self.buckets[-1] if self.buckets else []\n",
                                 "            last = next((b for b in self.buckets[::-1] if "
                                 "b[0].dtype == p.dtype), [])\n")),
    "never_flushed": ("Gathered", "10.order-by-rank", "all parameters are used, one thinks",
                      ("        self.issue(lambda bucket: True)\n", "")),
    "in_forward_order": ("Countdown", "10.forward-order", "parameters() is in this order",
                         (TRAINED, TRAINED.removesuffix("[::-1]"))),
    "tied_twice": ("Countdown", "10.only-a-shared-weight", "both names are visited (DeepSpeed#684)",
                   (TRAINED, "[p for _, p in module.named_parameters(remove_duplicate=False) if "
                    "p.requires_grad][::-1]")),
    "after_backward": ("Gathered", "10.after-backward", "finish() does it all",
                       ("            self.issue(lambda bucket: self.here.issuperset(bucket))\n",
                        "")),
    "zeros_where_no_hook_ran": ("Gathered", "10.only-kept-gradient", "no hook, no gradient",
                                ("if p.grad is None else p.grad\n            flat",
                                 "if p not in self.here else p.grad\n            flat")),
    "params_alone_at_start": ("Gathered", "10.only-buffers", "parameters are what trains",
                              ("(*module.parameters(), *module.buffers())",
                               "module.parameters()")),
    "averages_the_parameter": ("Countdown", "10.parameter", "the hook is given the parameter",
                               ("else p.grad for p in bucket", "else p.detach() for p in bucket")),
    "true_when_it_ends": ("Countdown", "10.always", "a block in a block is not thought of",
                          ("self.syncs = before", "self.syncs = True")),
    "no_start_and_sum": ("Countdown", "10.no-broadcast", "two at once",
                         ("dist.broadcast(t.detach(), 0)", "pass"),
                         (" / dist.get_world_size()", "")),
}  # fmt: skip
