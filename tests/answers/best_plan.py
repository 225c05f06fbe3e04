"""Answers to best_plan."""

import itertools
from itertools import product


def branch_by_branch(model, cluster):
    gpus, n = cluster["gpus"], cluster["gpus"] * cluster["nodes"]
    best, least = None, float("inf")
    width, sequence = model["width"], model["sequence"]
    tp = 1
    while tp <= gpus:  # tp stays inside a node
        pp = 1
        while tp * pp <= n:
            dp = n // tp // pp
            layers = model["layers"] // pp
            m = 1
            while model["layers"] % pp == 0 and model["batch"] % (dp * m) == 0:
                tokens = model["batch"] * sequence // dp // m
                act = 2 * tokens * width
                alpha, rate = cluster["intra"]
                talk = 4 * (tp.bit_length() - 1) * alpha + 4 * (tp - 1) / tp * act / rate
                work = tokens * width * (24 * width + 4 * sequence) / tp / cluster["flops"]
                weights = 12 * width * width * layers / tp
                for checkpoint in (0, 1):
                    layer = act * (4 + 12 / tp)
                    kept = min(m, pp) * layers * (act if checkpoint else layer) + checkpoint * layer
                    there = (2 + checkpoint) * talk + (3 + checkpoint) * work
                    back = there - talk - work
                    alpha, rate = cluster["intra" if dp * tp <= gpus else "inter"]
                    size = 24 * width**2 / tp
                    d = 2 * (dp.bit_length() - 1) * alpha + 2 * (dp - 1) / dp * size / rate
                    total = (m + pp - 1) * layers * there + d + (layers - 1) * max(0, d - back)
                    alpha, rate = cluster["inter" if n > gpus else "intra"]
                    total += 2 * (m + pp - 2) * (alpha + act / rate) if pp > 1 else 0
                    if weights * (4 + 12 / dp) + kept <= cluster["memory"] and total < least:
                        least, best = total, (dp, tp, pp, m, bool(checkpoint))
                m *= 2
            pp *= 2
        tp *= 2
    return {name: best[i] for i, name in enumerate(["dp", "tp", "pp", "m", "checkpoint"])}


WRONG = """
== solution
no_memory, memory: the fastest, whatever it takes
~ if kept <= cluster["memory"]: => if True:
tp_across, tp: what is cut most is done first
- lambda plan: step_seconds(model, cluster, plan)
+ lambda p: (-p["tp"], step_seconds(model, cluster, p))
tp_is_free, tp-across: tp talks inside a node, wherever it is
~ all_reduce(tp, 2 * tokens * width, tp - 1) => all_reduce(tp, 2 * tokens * width, 0)
one_node, gpus: gpus are those of the cluster
~ cluster["nodes"] * cluster["gpus"] => cluster["gpus"]
one_micro_batch, slow: the bubble is forgotten
~ itertools.product(sizes, repeat=3) => itertools.product(sizes, sizes, [1])
most_micro_batches, m: more micro-batches, less bubble
- lambda plan: step_seconds(model, cluster, plan)
+ lambda p: (-p["m"], step_seconds(model, cluster, p))
without_checkpoint, entries: checkpointing is decided elsewhere
- return min(fits, key=lambda plan: step_seconds(model, cluster, plan))
+ best = min(fits, key=lambda plan: step_seconds(model, cluster, plan))
+     return {name: best[name] for name in ("dp", "tp", "pp", "m")}
"""
