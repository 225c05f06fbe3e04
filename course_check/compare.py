"""Two values, leaf by leaf: do they agree, where do they not, and how are they shown?

A leaf of what a rank has after a call belongs to a *facet* of the outcome: what was returned, the
gradients, the optimizer's state, flags, or what is left in tensors, parameters and buffers. Each
facet can be wrong by itself, and is explained by itself.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn

from course_check.harness.seen import leaves

FACETS = ("left", "grad", "optimizer", "flag", "returned")
ANYTHING: Any = ...  # stands in an expected value where whatever is there is right
# What is noted of a reading of memory: see course_tools/count_memory.py.
COUNTED = {"memory": ANYTHING, "largest": ANYTHING}


def facet(path: str) -> str:
    """Which facet of what is left an argument's leaf belongs to."""
    last = path.rsplit(".", 1)[-1]
    if last in ("requires_grad", "training", "require_backward_grad_sync"):
        return "flag"
    return "optimizer" if "optimizer" in path else "grad" if last == "grad" else "left"


# ---- equality ------------------------------------------------------------------------------------


def same_kind(got: Any, want: Any) -> bool:
    """Whether ``got`` is of the kind that was asked for; if that is a float, any number will do."""
    if isinstance(want, float):
        return real(got) is not None
    if type(want) is int:  # numpy's, too; but True is an answer to another question
        return isinstance(got, Integral) and not isinstance(got, bool)
    if type(want) in (list, dict):
        return type(got) is type(want)
    return want is ANYTHING or isinstance(got, type(want))


def same(got: Any, want: Any, tolerance: float = 0.0) -> bool:
    """Equal in kind, structure and every leaf, its dtype and shape included."""
    if want is ANYTHING or not same_kind(got, want):
        return want is ANYTHING
    if isinstance(want, dict):
        return got.keys() == want.keys() and all(same(got[k], want[k], tolerance) for k in want)
    if isinstance(want, list | tuple):
        return len(got) == len(want) and all(map(same, got, want, [tolerance] * len(want)))
    if isinstance(want, Tensor):
        with torch._C.DisableTorchFunctionSubclass():  # a subclass may have its own idea of ==
            return _same_tensor(got.detach(), want.detach(), tolerance)
    if isinstance(want, float):
        number = real(got)
        assert number is not None
        both_nan = math.isnan(number) and math.isnan(want)
        return both_nan or math.isclose(number, want, rel_tol=tolerance)
    return bool(got == want)


def real(value: Any) -> float | None:
    """Any real number as a float: Python's, numpy's, a fraction, a tensor of no dimension. The
    result is None for everything else, for a bool, too."""
    if type(value) is Tensor and value.dim() == 0:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _same_tensor(got: Tensor, want: Tensor, tolerance: float) -> bool:
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if tolerance and want.is_floating_point():
        if want.dtype == torch.float64:
            tolerance *= 1e-5
        digits = max(tolerance, torch.finfo(want.dtype).eps)
        return torch.allclose(got, want, rtol=digits, atol=digits, equal_nan=True)
    return bool(alike(got, want).all())


def same_but_for(what: str, got: Any, want: Any) -> bool:
    """Whether all numbers are right, and the ``shape`` or the ``dtype`` of some tensor is not."""
    here, there = dict(leaves(got)), dict(leaves(want))
    other = "dtype" if what == "shape" else "shape"

    def fits(one: Any, two: Any) -> bool:
        if not (isinstance(one, Tensor) and isinstance(two, Tensor)):
            return False
        alone = one.numel() == two.numel() and getattr(one, other) == getattr(two, other)
        return alone and bool(alike(one.flatten(), two.flatten()).all())

    known = here.keys() == there.keys() != set()
    return known and all(fits(here[at], there[at]) for at in there)


def read_between(t: Tensor) -> Tensor:
    """The memory of a tensor that belongs to none of its elements."""
    memory = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())
    foreign = torch.ones(memory.shape, dtype=torch.bool)
    foreign.as_strided(t.shape, t.stride(), t.storage_offset()).fill_(False)
    return memory[foreign]


def is_held_otherwise(got: Any, want: Any) -> bool:
    """Whether two values are equal but for the kind of their lists, tuples, sets and ranges."""
    return isinstance(got, HOLDERS) and _flatten(got) == _flatten(want)


HOLDERS = (list, tuple, set, frozenset, range)


def _flatten(value: Any) -> Any:
    if isinstance(value, HOLDERS):
        inner = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        return [_flatten(item) for item in inner]
    return show(value, 17) if isinstance(value, Tensor) else value


def alike(got: Tensor, want: Tensor) -> Tensor:
    """Element by element: the same number, and two NaN are alike."""
    return (got == want) | ((got != got) & (want != want))


def find_places(got: Any, want: Any) -> list[int]:
    """At which elements two tensors of one shape differ."""
    if not (isinstance(got, Tensor) and isinstance(want, Tensor)) or got.shape != want.shape:
        return []
    return (~alike(got, want)).flatten().nonzero().flatten().tolist()


# ---- in words ------------------------------------------------------------------------------------


def show(value: Any, digits: int = 6) -> str:
    """A value in a few characters, the same on every machine; of a float so many digits."""
    if isinstance(value, Tensor):
        return _show_tensor(value, digits)
    if isinstance(value, list | tuple):
        inner = ", ".join(show(v, digits) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if type(value) is dict:
        return "{" + ", ".join(f"{k!r}: {show(v, digits)}" for k, v in value.items()) + "}"
    if isinstance(value, float):
        text = f"{value:.{digits}g}"
        return text + ".0" * (text.lstrip("-").isdigit() and value.is_integer())  # unlike an int
    if isinstance(value, nn.Module):
        return "a model"
    if value is ANYTHING:
        return "…"
    if value is None or isinstance(value, int | str | range):
        return shorten(repr(value))
    if isinstance(value, torch.optim.Optimizer):
        return type(value).__name__
    return f"{type(value).__name__}(…)" if " at 0x" in repr(value) else shorten(str(value))


def show_apart(one: Any, other: Any) -> tuple[str, str]:
    """Both values, with as many digits as it takes to see that they differ."""
    here, there = dict(leaves(one)), dict(leaves(other))
    apart = [
        (here[at], there[at]) for at in here.keys() & there.keys() if not same(here[at], there[at])
    ]
    enough = (d for d in (6, 9, 12, 17) if all(show(a, d) != show(b, d) for a, b in apart))
    digits = next(enough, 6)
    return show(one, digits), show(other, digits)


def shorten(text: str, most: int = 60) -> str:
    """The text on one line of at most so many characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 2] + " …"


def _show_tensor(t: Tensor, digits: int) -> str:
    flat = t.detach().flatten()
    words = [f"{v:.{digits}g}" if isinstance(v, float) else str(v) for v in flat[:10].tolist()]
    text = ", ".join(words + ["…"] * (len(flat) > 10))
    kind = "" if t.dtype == torch.float32 else f" {t.dtype}".replace("torch.", "")
    shape = "" if t.dim() == 1 else " " + "×".join(map(str, t.shape)) if t.dim() else " scalar"
    return f"[{text}]{kind}{shape}"
