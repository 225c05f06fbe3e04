"""Answers to best_plan."""

from itertools import product


def all_of_them(model, cluster):
    L, D, T = model["layers"], model["width"], model["sequence"]
    n = cluster["nodes"] * cluster["gpus"]

    def link(one, other):
        near = one // cluster["gpus"] == other // cluster["gpus"]
        return cluster["intra" if near else "inter"]

    def all_reduce(k, size, last):
        a, rate = link(0, last)
        return 2 * (k - 1).bit_length() * a + 2 * (k - 1) / k * size / rate

    def seconds(plan):
        dp, tp, pp, m, again = plan
        t = model["batch"] // (dp * m) * T
        f = (24 * t * D * D + 4 * t * T * D) / tp / cluster["flops"]
        talk = 2 * all_reduce(tp, 2 * t * D, tp - 1)
        b = 2 * f + talk + again * (f + talk)
        d = all_reduce(dp, 24 * D * D / tp, (dp - 1) * tp)
        hops = [0]
        for s in range(1, pp):
            a, rate = link((s - 1) * dp * tp, s * dp * tp)
            hops.append(a + 2 * t * D / rate)
        left = max(d, L // pp * (d - b) + b)
        way = sum(hops) + (m - 1) * max(hops)
        return (m + pp - 1) * L // pp * (f + talk + b) + 2 * way + left

    def size(plan):
        dp, tp, pp, m, again = plan
        t = model["batch"] // (dp * m) * T
        layer, alive = 2 * t * D * (4 + 12 / tp), min(m, pp) * L // pp
        weights = L // pp * 12 * D * D / tp * (4 + 12 / dp)
        return weights + (alive * 2 * t * D + layer if again else alive * layer)

    powers = [2**i for i in range(n.bit_length())]
    counts = [2**i for i in range(12)]
    plans = [
        (dp, tp, n // (dp * tp), m, again)
        for dp, tp, m, again in product(powers, powers, counts, (False, True))
        if dp * tp <= n and L % (n // (dp * tp)) == 0 and model["batch"] % (dp * m) == 0
    ]
    fitting = [plan for plan in plans if size(plan) <= cluster["memory"]]
    best = min(fitting, key=seconds)
    names = ("dp", "tp", "pp", "m", "checkpoint")
    return dict(zip(names, best, strict=True))


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
== all_of_them
no_memory, memory: the fastest, whatever it takes
~ if size(plan) <= cluster["memory"] =>
tp_across, tp: what is cut most is done first
~ key=seconds => key=lambda p: (-p[1], seconds(p))
tp_is_free, tp-across: tp talks inside a node, wherever it is
~ all_reduce(tp, 2 * t * D, tp - 1) => all_reduce(tp, 2 * t * D, 0)
one_node, gpus: gpus are those of the cluster
~ cluster["nodes"] * cluster["gpus"] => cluster["gpus"]
one_micro_batch, slow: the bubble is forgotten
~ counts = [2**i for i in range(12)] => counts = [1]
most_micro_batches, m: more micro-batches, less bubble
~ key=seconds => key=lambda p: (-p[3], seconds(p))
without_checkpoint, entries: checkpointing is decided elsewhere
~ zip(names, best, strict=True) => zip(names[:4], best, strict=False)
"""
