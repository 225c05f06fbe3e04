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


def a_table_sorted(model, cluster):
    D, T, batch = model["width"], model["sequence"], model["batch"]
    rows = []

    def grow(dp, tp, pp, m, again):
        """Doubles one of the sizes; each plan once, in the order of its names."""
        here, n = dp * tp * pp, cluster["nodes"] * cluster["gpus"]
        if here < n:
            if tp == pp == 1:
                grow(2 * dp, 1, 1, 1, again)
            if pp == 1:
                grow(dp, 2 * tp, 1, 1, again)
            grow(dp, tp, 2 * pp, 1, again)
        if here != n or model["layers"] % pp or batch % (dp * m):
            return
        layers, t = model["layers"] // pp, batch * T / dp / m
        act, weights = 2 * t * D, 12 * D**2 * layers / tp
        far = [
            cluster["intra"] if r < cluster["gpus"] else cluster["inter"]
            for r in (tp - 1, (dp - 1) * tp, n - 1)
        ]

        def total(k, size, link):
            return 2 * (k - 1).bit_length() * link[0] + 2 * size * (k - 1) / k / link[1]

        talk, d = 2 * total(tp, act, far[0]), total(dp, 2 * weights / layers, far[1])
        f = t * D * (24 * D + 4 * T) / tp / cluster["flops"] + talk
        b = 2 * f - talk + f * again
        hop = far[2][0] + act / far[2][1]
        seconds = (m + pp - 1) * layers * (f + b) + d + (layers - 1) * max(0, d - b)
        seconds += 2 * (m + pp - 2) * hop * (pp > 1)
        one = act * (4 + 12 / tp)
        kept = min(m, pp) * layers * (act if again else one) + one * again
        if weights * (4 + 12 / dp) + kept <= cluster["memory"]:
            names = {"dp": dp, "tp": tp, "pp": pp, "m": m, "checkpoint": again, "zero": 1}
            rows.append((seconds, len(rows), names))
        grow(dp, tp, pp, 2 * m, again)

    for again in (False, True):
        grow(1, 1, 1, 1, again)
    return sorted(rows)[0][2]


WRONG = {
    "no_memory": ("all_of_them", "17.memory", "the fastest, whatever it takes",
                  ("if size(plan) <= cluster[\"memory\"]", "")),
    "whole_states": ("all_of_them", "17.memory", "states are forgotten",
                     ("(4 + 12 / dp)", "4")),
    "tp_across": ("all_of_them", "17.tp", "what is cut most is done first",
                  ("key=seconds", "key=lambda p: (-p[1], seconds(p))")),
    "tp_is_free": ("all_of_them", "17.tp-across", "tp talks inside a node, wherever it is",
                   ("all_reduce(tp, 2 * t * D, tp - 1)", "all_reduce(tp, 2 * t * D, 0)")),
    "biggest_dp": ("all_of_them", "17.dp", "data parallelism scales",
                   ("key=seconds", "key=lambda p: (-p[0], seconds(p))")),
    "one_node": ("all_of_them", "17.gpus", "gpus are those of the cluster",
                 ('cluster["nodes"] * cluster["gpus"]', 'cluster["gpus"]')),
    "always_again": ("all_of_them", "17.checkpoint", "checkpointing saves memory",
                     ("(False, True)", "(True,)")),
    "one_micro_batch": ("all_of_them", "17.slow", "the bubble is forgotten",
                        ("counts = [2**i for i in range(12)]", "counts = [1]")),
    "most_micro_batches": ("all_of_them", "17.m", "more micro-batches, less bubble",
                           ("key=seconds", "key=lambda p: (-p[3], seconds(p))")),
    "slowest": ("all_of_them", "17.slow", "max in place of min", ("best = min", "best = max")),
    "a_tuple": ("all_of_them", "17.wrong-type", "the plan as it was tried",
                ("return dict(zip(names, best, strict=True))", "return best")),
    "without_checkpoint": ("all_of_them", "17.entries", "checkpointing is decided elsewhere",
                           ("zip(names, best, strict=True)", "zip(names[:4], best, strict=False)")),
}  # fmt: skip
