"""Answers to best_plan."""

import itertools
from itertools import product


def fastest_first(model, cluster):
    """By their seconds, with tp inside a node; the first that fits."""
    gpus, n = cluster["gpus"], cluster["gpus"] * cluster["nodes"]
    width, sequence, timed = model["width"], model["sequence"], []
    for i, j, k, again in product(range(gpus.bit_length()), range(9), range(9), (0, 1)):
        tp, pp, m = 2**i, 2**j, 2**k
        dp, layers = n // (tp * pp), model["layers"] // pp
        if tp * pp > n or model["layers"] % pp or model["batch"] % (dp * m):
            continue
        act, (alpha, rate) = 2 * width * sequence * model["batch"] // (dp * m), cluster["intra"]
        talk = 4 * i * alpha + 4 * (tp - 1) / tp * act / rate
        work = act * (12 * width + 2 * sequence) / tp / cluster["flops"]
        there = (2 + again) * talk + (3 + again) * work
        alpha, rate = cluster["intra" if dp * tp <= gpus else "inter"]
        d = 2 * (dp.bit_length() - 1) * alpha + 48 * (dp - 1) / dp * width**2 / tp / rate
        total = (m + pp - 1) * layers * there + d + (layers - 1) * max(0, d - there + talk + work)
        alpha, rate = cluster["inter" if n > gpus else "intra"]
        total += 2 * (m + pp - 2) * (alpha + act / rate) if pp > 1 else 0
        kept = min(m, pp) * layers * act * (1 if again else 4 + 12 / tp)
        kept += again * act * (4 + 12 / tp) + 12 * width * width * layers / tp * (4 + 12 / dp)
        timed.append((total, (dp, tp, pp, m, bool(again)), kept))
    [best, *_] = (plan for _, plan, kept in sorted(timed) if kept <= cluster["memory"])
    return dict(zip(["dp", "tp", "pp", "m", "checkpoint"], best, strict=True))


WRONG = """
== solution
no_memory, memory: the fastest, whatever it takes
~ if kept <= cluster["memory"]: => if True:
tp_across, tp: what is cut most is done first
- lambda plan: step_seconds(model, cluster, plan)
+ lambda p: (-p["tp"], step_seconds(model, cluster, p))
tp_is_free, tp-across: tp talks inside a node, wherever it is
~ all_reduce(tp, 2 * tokens * width, tp - 1) => all_reduce(tp, 2 * tokens * width, 0)
never_again, none-left: checkpointing is for the patient
~ (False, True) => (False,)
no_stages, less: stages stand idle
~ pp == 0 => pp != 1
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
