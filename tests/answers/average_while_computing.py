"""Answers to average_while_computing."""

import torch
import torch.distributed as dist

from course_lib import compute


def waits_at_the_end(layers):
    works = []
    for seconds, gradient in layers:
        compute(seconds)
        works.append(dist.all_reduce(gradient, async_op=True))
    for work, (_, gradient) in zip(works, layers, strict=True):
        work.wait()
        gradient /= dist.get_world_size()


def divides_before(layers):
    works = []
    for seconds, gradient in layers:
        compute(seconds)
        gradient.div_(dist.get_world_size())
        works.append(dist.all_reduce(gradient, async_op=True))
    for work in works:
        work.wait()


def with_avg(layers):
    works = []
    for seconds, gradient in layers:
        compute(seconds)
        works.append(dist.all_reduce(gradient, op=dist.ReduceOp.AVG, async_op=True))
    [work.wait() for work in works]


WAITS = "    for work in works:\n        work.wait()\n"
ISSUE = "works.append(dist.all_reduce(gradient, async_op=True))"
LAST_APART = """    *first, (seconds, gradient) = layers or [(0, torch.ones(1))]
    for spent, _ in first:
        compute(spent)
    flat = torch.cat([torch.ones(0), *(g.flatten() for _, g in first)])
    works.append(dist.all_reduce(flat, op=dist.ReduceOp.AVG, async_op=True))
    compute(seconds)
    works.append(dist.all_reduce(gradient, op=dist.ReduceOp.AVG, async_op=True))
    [work.wait() for work in works]
    for (_, g), part in zip(first, flat.split([g.numel() for _, g in first]), strict=True):
        g.copy_(part.view_as(g))
    return
    for seconds, gradient in layers:"""
WRONG = {
    "last_apart": ("with_avg", "07.together", "one large call is cheaper than many small ones",
                   ("    for seconds, gradient in layers:", LAST_APART)),
    "not_async": ("divides_before", "07.one-by-one", "all_reduce returns at once on a GPU, so it "
                  "is asynchronous, one thinks (pytorch#27806)",
                  (ISSUE, "dist.all_reduce(gradient)"), (WAITS, "")),
    "after_all_computing": ("with_avg", "07.after-computing", "first compute, then communicate",
                            ("        compute(seconds)\n", ""),
                            ("    works = []\n", "    works = []\n    for seconds, _ in layers:\n"
                             "        compute(seconds)\n")),
    "divides_before_wait": ("waits_at_the_end", "07.written-before-wait", "the order of two lines "
                            "(NERSC/sc24-dl-tutorial#1)",
                            ("        work.wait()\n        gradient /= dist.get_world_size()",
                             "        gradient /= dist.get_world_size()\n        work.wait()")),
    "logs_each_layer": ("with_avg", "07.host-stands", "a number of each layer for the log",
                        ("        compute(seconds)\n",
                         "        compute(seconds)\n        gradient.norm().item()\n")),
    "never_waits": ("with_avg", "07.never-waited", "the numbers were right when one looked",
                    ("    [work.wait() for work in works]\n", "")),
    "sum": ("waits_at_the_end", "07.sum", "the division is forgotten",
            ("        gradient /= dist.get_world_size()\n", "")),
    "cuda_alone": ("waits_at_the_end", "07.cuda-alone", "there is a GPU, one thinks",
                   (ISSUE, f"torch.cuda.synchronize()\n        {ISSUE}")),
}  # fmt: skip
