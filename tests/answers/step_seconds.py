"""Answers to step_seconds."""

import math
from dataclasses import dataclass


def term_by_term(model, cluster, plan):
    dp, tp, pp, m = plan["dp"], plan["tp"], plan["pp"], plan["m"]
    layers, width, sequence = model["layers"] // pp, model["width"], model["sequence"]
    tokens = model["batch"] // (dp * m) * sequence

    def link(first, last):
        inside = first // cluster["gpus"] == last // cluster["gpus"]
        return cluster["intra"] if inside else cluster["inter"]

    def all_reduce(n, nbytes, latency, bandwidth):
        return 2 * math.ceil(math.log2(n)) * latency + 2 * (n - 1) / n * nbytes / bandwidth

    computing = (24 * tokens * width**2 + 4 * tokens * sequence * width) / tp / cluster["flops"]
    talking = 2 * all_reduce(tp, 2 * tokens * width, *link(0, tp - 1))
    forward = computing + talking
    backward = 2 * computing + talking
    if plan["checkpoint"]:
        backward += forward
    averaging = all_reduce(dp, 2 * 12 * width**2 / tp, *link(0, (dp - 1) * tp))
    left = max(averaging, layers * averaging - (layers - 1) * backward)
    hops = [0]
    for stage in range(pp - 1):
        latency, bandwidth = link(stage * dp * tp, (stage + 1) * dp * tp)
        hops.append(latency + 2 * tokens * width / bandwidth)
    slots = m + pp - 1
    return slots * layers * (forward + backward) + 2 * (sum(hops) + (m - 1) * max(hops)) + left


def played_step_by_step(model, cluster, plan):
    """Clocks of the stages, and of each call in their order."""
    dp, tp, pp, m = map(plan.get, ("dp", "tp", "pp", "m"))
    per_stage = model["layers"] // pp
    t = model["batch"] * model["sequence"] // (dp * m)
    act = 2 * t * model["width"]

    def pick(a, b):
        return cluster["intra" if a // cluster["gpus"] == b // cluster["gpus"] else "inter"]

    def ring(n, size, far):
        if n == 1:
            return 0
        a, b = pick(0, far)
        return 2 * (n - 1).bit_length() * a + 2 * size * (n - 1) / (n * b)

    flops = t * model["width"] * (24 * model["width"] + 4 * model["sequence"]) / tp
    f = flops / cluster["flops"] + 2 * ring(tp, act, tp - 1)
    b = 2 * flops / cluster["flops"] + 2 * ring(tp, act, tp - 1) + f * plan["checkpoint"]
    clock = [0.0] * pp
    for cost, order in ((f, range(pp)), (b, range(pp - 1, -1, -1))):
        for _ in range(m):
            came = None
            for s in order:
                if came is not None:
                    alpha, rate = pick(s * dp * tp, came * dp * tp)
                    clock[s] = max(clock[came], clock[s]) + alpha + act / rate
                clock[s] += per_stage * cost
                came = s
    end, busy = clock[0], 0.0
    for layer in range(per_stage):
        gone = clock[0] - (per_stage - 1 - layer) * b
        busy = max(busy, gone) + ring(dp, 24 * model["width"] ** 2 / tp, (dp - 1) * tp)
    return max(end, busy) if dp > 1 else end


def in_a_class(model, cluster, plan):
    @dataclass
    class Step:
        layers: int
        width: int
        sequence: int
        batch: int
        dp: int
        tp: int
        pp: int
        m: int
        checkpoint: bool
        nodes: int
        gpus: int
        flops: float
        intra: tuple
        inter: tuple

        def link(self, *ranks):
            return self.intra if len({r // self.gpus for r in ranks}) == 1 else self.inter

        def sum(self, ranks, nbytes):
            alpha, rate = self.link(*ranks)
            n = len(ranks)
            rounds = 0
            while 2**rounds < n:
                rounds += 1
            return 2 * rounds * alpha + 2 * (1 - 1 / n) * nbytes / rate

        @property
        def message(self):
            return 2 * self.width * self.sequence * (self.batch // self.dp // self.m)

        @property
        def products(self):
            tokens = self.message / 2 / self.width
            work = tokens * self.width * (24 * self.width + 4 * self.sequence)
            return work / self.tp / self.flops

        @property
        def seconds(self):
            talk = 2 * self.sum(range(self.tp), self.message)
            passes = 4 if self.checkpoint else 3
            pair = passes * self.products + (passes - 1) * talk
            back = pair - self.products - talk
            layers = self.layers // self.pp
            replicas = range(0, self.dp * self.tp, self.tp)
            d = self.sum(replicas, 24 * self.width**2 / self.tp)
            exposed = d + (layers - 1) * max(0, d - back)
            ends = [s * self.dp * self.tp for s in range(self.pp)]
            hop = [self.message / r + a for a, r in map(self.link, ends, ends[1:])]
            hops = sum(hop) + (self.m - 1) * max(hop, default=0)
            return (self.m + self.pp - 1) * layers * pair + 2 * hops + exposed

    return Step(**model, **cluster, **plan).seconds


WRONG = {
    "once_a_layer": ("term_by_term", "17.once-a-layer", "one block, one all_reduce",
                     ("talking = 2 *", "talking =")),
    "whole_gradients": ("term_by_term", "17.whole-gradients", "the gradients of a layer are those "
                        "of all its ranks", ("width**2 / tp, *link", "width**2, *link")),
    "of_one_micro_batch": ("term_by_term", "17.bubble", "the bubble is in forwards alone",
                           ("return slots * layers * (forward + backward)",
                            "return (m * (forward + backward) + (pp - 1) * backward) * layers")),
    "no_bubble": ("in_a_class", "17.bubble", "a stage computes m micro-batches",
                  ("(self.m + self.pp - 1)", "self.m")),
    "network_for_all": ("term_by_term", "17.network", "ranks talk over the network",
                        ("inside = first // cluster[\"gpus\"] == last // cluster[\"gpus\"]",
                         "inside = False")),
    "float32": ("term_by_term", "17.float32", "a float has four bytes",
                ("all_reduce(tp, 2 * tokens", "all_reduce(tp, 4 * tokens"),
                ("2 * 12 *", "4 * 12 *"),
                ("latency + 2 * tokens", "latency + 4 * tokens")),
    "m_forgotten": ("term_by_term", "17.m", "the batch goes through once",
                    ("slots = m + pp - 1", "slots = pp"), ("(m - 1) * max(hops)", "0")),
    "m_in_tokens": ("term_by_term", "17.m", "the batch of a replica is its micro-batch",
                    ("// (dp * m)", "// dp")),
    "tp_hidden": ("term_by_term", "17.tp-is-silent", "it overlaps, as gradients do",
                  ("forward = computing + talking", "forward = computing"),
                  ("2 * computing + talking", "2 * computing")),
    "not_hidden": ("term_by_term", "17.not-hidden", "all gradients, then the mean",
                   ("left = max(averaging, layers * averaging - (layers - 1) * backward)",
                    "left = layers * averaging")),
    "hidden": ("term_by_term", "17.all-hidden", "it overlaps with the backward",
               ("+ left", "")),
    "no_hops": ("in_a_class", "17.no-hops", "activations are small",
                (" + 2 * hops", "")),
    "one_way": ("in_a_class", "17.no-hops", "activations go there", ("2 * hops", "hops")),
    "size_of_dp": ("term_by_term", "17.values-differ", "dp ranks fit in a node without tp",
                   ("*link(0, (dp - 1) * tp)", "*link(0, dp - 1)")),
    "no_attention": ("in_a_class", "17.attention", "6 N D and no more",
                     ("(24 * self.width + 4 * self.sequence)", "24 * self.width")),
    "backward_once": ("term_by_term", "17.backward-once", "there and back are alike",
                      ("2 * computing + talking", "computing + talking")),
    "recompute_quiet": ("term_by_term", "17.not-again", "computed again, and nothing said",
                        ("backward += forward", "backward += computing")),
    "one_less": ("term_by_term", "17.bubble", "one slot for each stage", ("m + pp - 1", "m + pp")),
    "nothing": ("term_by_term", "17.returns-nothing", "return is forgotten",
                ("return slots", "slots")),
}  # fmt: skip
