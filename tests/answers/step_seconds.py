"""Answers to step_seconds."""


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


WRONG = """
== solution
once_a_layer, once-a-layer: one block, one all_reduce
~ talking = 2 * => talking =
hidden_by_one_backward, not-again: what is computed again hides nothing
~ (layers - 1) * backward) => (layers - 1) * (2 * computing + talking))
"""
