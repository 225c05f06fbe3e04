"""Answers to step_seconds."""

import math
from dataclasses import dataclass


def term_by_term(model, cluster, plan):
    dp, tp, pp, m = plan["dp"], plan["tp"], plan["pp"], plan["m"]
    layers, width, sequence = model["layers"] // pp, model["width"], model["sequence"]
    tokens = model["batch"] // (dp * m) * sequence

    def link(first, last):
        return cluster["intra" if first // cluster["gpus"] == last // cluster["gpus"] else "inter"]

    def all_reduce(n, nbytes, latency, bandwidth):
        return 2 * math.ceil(math.log2(n)) * latency + 2 * (n - 1) / n * nbytes / bandwidth

    computing = (24 * tokens * width**2 + 4 * tokens * sequence * width) / tp / cluster["flops"]
    talking = 2 * all_reduce(tp, 2 * tokens * width, *link(0, tp - 1))
    forward = computing + talking
    backward = 2 * computing + talking + plan["checkpoint"] * forward
    averaging = all_reduce(dp, 2 * 12 * width**2 / tp, *link(0, (dp - 1) * tp))
    left = max(averaging, layers * averaging - (layers - 1) * backward)
    links = [link(stage * dp * tp, (stage + 1) * dp * tp) for stage in range(pp - 1)]
    hops = [0, *(latency + 2 * tokens * width / bandwidth for latency, bandwidth in links)]
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


WRONG = """
== term_by_term
once_a_layer, once-a-layer: one block, one all_reduce
~ talking = 2 * => talking =
whole_gradients, whole-gradients: the gradients of a layer are those of all its ranks
~ width**2 / tp, *link => width**2, *link
of_one_micro_batch, bubble: the bubble is in forwards alone
~ slots * layers * (forward + backward) => (m * (forward + backward) + (pp - 1) * backward) * layers
network_for_all, network: ranks talk over the network
~ first // cluster["gpus"] == last // cluster["gpus"] => False
m_in_tokens, m: the batch of a replica is its micro-batch
~ // (dp * m) => // dp
not_hidden, not-hidden: all gradients, then the mean
~ left = max(averaging, layers * averaging - (layers - 1) * backward) => left = layers * averaging
all_of_it_hidden, all-hidden: a layer's gradient goes while it is computed
~ max(averaging, layers * averaging - (layers - 1) * => max(0, layers * averaging - layers *
once_through, latency: a tree is gone through once
~ return 2 * math.ceil => return math.ceil
neighbours_average, tp-across: dp groups are neighbours, too
~ (dp - 1) * tp)) => dp - 1))
all_hops_each_time, hops: each micro-batch goes all the way
~ (sum(hops) + (m - 1) * max(hops)) => m * sum(hops)
activations_of_four, float32: activations are float32
~ 2 * tokens * width, *link => 4 * tokens * width, *link
hidden_by_one_backward, not-again: what is computed again hides nothing
~ (layers - 1) * backward) => (layers - 1) * (2 * computing + talking))
no_hops, no-hops: activations are small
~  + 2 * (sum(hops) + (m - 1) * max(hops)) =>
no_attention, attention: 6 N D and no more
~  + 4 * tokens * sequence * width =>
backward_once, backward-once: there and back are alike
~ 2 * computing + talking => computing + talking
"""
