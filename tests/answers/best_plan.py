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
        links = [link((s - 1) * dp * tp, s * dp * tp) for s in range(1, pp)]
        hops = [0, *(a + 2 * t * D / rate for a, rate in links)]
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
== all_of_them
no_memory, memory: the fastest, whatever it takes
~ if size(plan) <= cluster["memory"] =>
tp_across, tp: what is cut most is done first
~ key=seconds => key=lambda p: (-p[1], seconds(p))
tp_is_free, tp-across: tp talks inside a node, wherever it is
~ all_reduce(tp, 2 * t * D, tp - 1) => all_reduce(tp, 2 * t * D, 0)
never_again, none-left: checkpointing is for the patient
~ (False, True) => (False,)
least_memory, smallest: what is small fits
~ key=seconds => key=size
states_whole, whole-states: ZeRO is for later
~ (4 + 12 / dp) => 16
as_in_gpipe, all-alive: all micro-batches wait for their backward
~ min(m, pp) => m
no_stages, less: stages stand idle
~ if dp * tp <= n and => if dp * tp == n and
one_node, gpus: gpus are those of the cluster
~ cluster["nodes"] * cluster["gpus"] => cluster["gpus"]
one_micro_batch, slow: the bubble is forgotten
~ counts = [2**i for i in range(12)] => counts = [1]
most_micro_batches, m: more micro-batches, less bubble
~ key=seconds => key=lambda p: (-p[3], seconds(p))
without_checkpoint, entries: checkpointing is decided elsewhere
~ zip(names, best, strict=True) => zip(names[:4], best, strict=False)
"""
