"""Answers to memory_bytes."""

import math


def sum_of_three(model, plan):
    dp, tp, pp, m = plan["dp"], plan["tp"], plan["pp"], plan["m"]
    width, layers = model["width"], model["layers"] // pp
    weights = layers * 12 * width**2 // tp
    kept = 2 * weights
    kept += 2 * weights // (dp if plan["zero"] >= 2 else 1)
    kept += 12 * weights // (dp if plan["zero"] >= 1 else 1)
    tokens = model["batch"] // (dp * m) * model["sequence"]
    whole = 2 * tokens * width * (4 + 12 / tp)
    alive = min(m, pp) if plan["schedule"] == "1f1b" else m
    if plan["checkpoint"]:
        return int(kept + alive * layers * 2 * tokens * width + whole)
    return int(kept + alive * layers * whole)


def tensor_by_tensor(model, plan):
    """Lists of what there is, with shapes."""
    D, T = model["width"], model["sequence"]
    B = model["batch"] // plan["dp"] // plan["m"]
    h = D // plan["tp"]
    shapes = [(3 * h, D), (D, h), (4 * h, D), (D, 4 * h)] * (model["layers"] // plan["pp"])
    total = 0
    for rows, columns in shapes:
        numel = rows * columns
        share = math.ceil(numel / plan["dp"])
        total += 2 * numel
        total += 2 * (share if plan["zero"] > 1 else numel)
        total += 3 * 4 * (share if plan["zero"] > 0 else numel)
    inside = [(B, T, D)] * 4 + [(B, T, h)] * 4 + [(B, T, 4 * h)] * 2
    layer = sum(2 * math.prod(shape) for shape in inside)
    at_once = plan["m"]
    if plan["schedule"] == "1f1b":
        at_once = min(at_once, plan["pp"])
    for _ in range(at_once):
        for _ in range(model["layers"] // plan["pp"]):
            total += 2 * B * T * D if plan["checkpoint"] else layer
    return total + layer * plan["checkpoint"]


def by_the_token(model, plan):
    tokens = model["batch"] * model["sequence"] / plan["dp"] / plan["m"]
    per_token = 8 + 24 / plan["tp"]
    layers = model["layers"] / plan["pp"]
    alive = layers * {"gpipe": plan["m"], "1f1b": min(plan["m"], plan["pp"])}[plan["schedule"]]
    numbers = alive * (2 if plan["checkpoint"] else per_token)
    numbers += per_token if plan["checkpoint"] else 0
    divided = [0, 12, 14][plan["zero"]]
    bytes_each = 16 - divided + divided / plan["dp"]
    weights = 12 * model["width"] ** 2 * layers / plan["tp"]
    return round(weights * bytes_each + tokens * model["width"] * numbers)


WRONG = {
    "float32": ("sum_of_three", "17.float32", "a float has four bytes",
                ("kept = 2 *", "kept = 4 *"), ("kept += 2 *", "kept += 4 *"),
                ("whole = 2 *", "whole = 4 *"), ("layers * 2 * tokens", "layers * 4 * tokens")),
    "no_master": ("sum_of_three", "17.master", "Adam has two averages",
                  ("12 * weights", "8 * weights")),
    "no_zero": ("sum_of_three", "17.zero", "the stage is not looked at",
                ("(dp if plan[\"zero\"] >= 2 else 1)", "1"),
                ("(dp if plan[\"zero\"] >= 1 else 1)", "1")),
    "gradients_whole": ("sum_of_three", "17.zero", "every stage divides the states alone",
                        ("(dp if plan[\"zero\"] >= 2 else 1)", "1")),
    "all_layers": ("sum_of_three", "17.whole-model", "a model has all its layers",
                   ("model[\"layers\"] // pp", "model[\"layers\"]")),
    "all_alive": ("sum_of_three", "17.order", "every micro-batch is kept until its backward",
                  ("min(m, pp) if plan[\"schedule\"] == \"1f1b\" else m", "m")),
    "one_alive": ("sum_of_three", "17.one-alive", "one after the other",
                  ("min(m, pp) if plan[\"schedule\"] == \"1f1b\" else m", "1")),
    "always_pp": ("tensor_by_tensor", "17.always-pp", "1F1B has pp in flight",
                  ("min(at_once, plan[\"pp\"])", "plan[\"pp\"]")),
    "never_again": ("by_the_token", "17.not-again", "checkpointing is forgotten",
                    ("(2 if plan[\"checkpoint\"] else per_token)", "per_token"),
                    ("per_token if plan[\"checkpoint\"] else 0", "0")),
    "inputs_alone": ("sum_of_three", "17.one-more", "what is computed again is forgotten",
                     ("2 * tokens * width + whole)", "2 * tokens * width)")),
    "whole_batch": ("sum_of_three", "17.m", "the batch of a replica", ("// (dp * m)", "// dp")),
    "gigabytes": ("by_the_token", "17.units", "memory is told in GB",
                  ("return round(", "return 1e-9 * round(")),
    "nothing": ("sum_of_three", "17.returns-nothing", "return is forgotten, where nothing is kept",
                ("return int(kept + alive * layers * whole)", "kept + alive * layers * whole")),
}  # fmt: skip
