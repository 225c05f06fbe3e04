"""Whether what a rank says that a dataset has watched can be: an answer may have made it up."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from course_lib.beside.watched import Watched

PASS = {  # what is noted of a forward pass
    "samples": list,
    "logits": Tensor,
    "weights": list,
    "gradient bytes": int,
    "under ddp": bool,
    "by chance": bool,
    "trained": bool,
    "stale": bool,
}


def can_have_seen(data: Watched, left: Any) -> bool:
    """Whether ``left`` can be what this dataset has seen."""
    passes = left.get("passes") if type(left) is dict else None
    return type(passes) is list and all(_can_be(data.tensors[1], p) for p in passes)


def _can_be(labels: Tensor, noted: Any) -> bool:
    if type(noted) is not dict or {name: type(value) for name, value in noted.items()} != PASS:
        return False
    samples, logits = noted["samples"], noted["logits"]
    known = all(type(i) is int and 0 <= i < len(labels) for i in samples)
    fits = logits.dim() == 2 and len(logits) == len(samples) > 0
    if not (known and fits and logits.is_floating_point()):
        return False
    return logits.shape[1] > labels.max() and all(type(w) is float for w in noted["weights"])
