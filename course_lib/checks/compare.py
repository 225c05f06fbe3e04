"""Two values, leaf by leaf: do they agree, and where do they not?"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


class _Anything:
    """Stands in an expected value where whatever is there is right."""

    def __repr__(self) -> str:
        return "…"

    def __deepcopy__(self, memo: dict) -> _Anything:
        return self


ANYTHING: Any = _Anything()


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor, number, … in lists, tuples, dicts and modules, with the way to it."""
    if isinstance(value, nn.Module):
        for name, parameter in value.named_parameters():
            yield f"{path}.{name}", parameter.data
            yield f"{path}.{name}.grad", parameter.grad
        for name, buffer in value.named_buffers():
            yield f"{path}.{name}", buffer
    elif isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from leaves(item, f"{path}[{i}]")
    else:
        yield path, value


def tensors(value: Any) -> list[Tensor]:
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, Tensor)]


def snapshot(value: Any) -> Any:
    """A copy that later writes do not reach, strides and the memory between them included."""
    return copy.deepcopy(value)


def same_kind(got: Any, want: Any) -> bool:
    """Whether ``got`` is the sort of thing that was asked for; numbers are lenient."""
    if want is ANYTHING:
        return True
    if isinstance(want, float):
        return isinstance(got, float | int) and not isinstance(got, bool)
    if isinstance(want, int) and not isinstance(want, bool):
        return isinstance(got, int) and not isinstance(got, bool)
    if isinstance(want, list | dict):
        return type(got) is type(want)
    return isinstance(got, type(want))


def same(got: Any, want: Any, tolerance: float = 0.0) -> bool:
    """Equal in kind, structure and every leaf, its dtype and shape included."""
    if want is ANYTHING:
        return True
    if not same_kind(got, want):
        return False
    here, there = list(leaves(got)), list(leaves(want))
    return [path for path, _ in here] == [path for path, _ in there] and all(
        _same_leaf(g, w, tolerance) for (_, g), (_, w) in zip(here, there, strict=True)
    )


def _same_leaf(got: Any, want: Any, tolerance: float) -> bool:
    if want is ANYTHING:
        return True
    if isinstance(got, Tensor) and isinstance(want, Tensor):
        with torch._C.DisableTorchFunctionSubclass():  # a subclass may have its own idea of ==
            return _same_tensor(got.detach(), want.detach(), tolerance)
    if isinstance(want, float) and same_kind(got, want):
        return math.isclose(_float(got), want, rel_tol=tolerance, abs_tol=0.0)
    return same_kind(got, want) and bool(got == want)


def _float(number: float) -> float:
    try:
        return float.__float__(number + 0.0)
    except OverflowError:  # an int that no float can hold
        return math.inf


def _same_tensor(got: Tensor, want: Tensor, tolerance: float) -> bool:
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if tolerance and want.is_floating_point():
        return torch.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    return bool(alike(got, want).all())


def alike(got: Tensor, want: Tensor) -> Tensor:
    """Element by element: the same number; two NaN are alike, and 0.0 and -0.0 are not."""
    equal = got == want
    if want.is_floating_point():
        equal &= torch.signbit(got) == torch.signbit(want)
    return equal | ((got != got) & (want != want))


def stray_writes(before: Tensor, after: Tensor) -> bool:
    """Whether memory that lies between the elements of a strided tensor has changed."""
    if before.untyped_storage().nbytes() == before.nbytes:
        return False  # nothing lies between
    old, new = snapshot(before).zero_(), snapshot(after).zero_()
    mine, theirs = old.untyped_storage(), new.untyped_storage()
    return mine.nbytes() == theirs.nbytes() and bytes(mine) != bytes(theirs)


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether an element of the one lies where an element of the other lies."""
    first, second = sorted((a.untyped_storage(), b.untyped_storage()), key=lambda s: s.data_ptr())
    if first.data_ptr() + first.nbytes() <= second.data_ptr():
        return False
    return not _addresses(a).isdisjoint(_addresses(b))


def _addresses(t: Tensor) -> set[int]:
    """The byte address of every element."""
    if t.numel() == 0:
        return set()
    span = 1 + sum((size - 1) * step for size, step in zip(t.shape, t.stride(), strict=True))
    offsets = torch.arange(span).as_strided(t.shape, t.stride())
    first, size = t.data_ptr(), t.element_size()
    return {first + at * size for at in offsets.flatten().tolist()}


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
        return f"{value:.{digits}g}"
    if type(value).__repr__ is nn.Module.__repr__:
        there = (f"{path[1:]} {show(leaf)}" for path, leaf in leaves(value) if leaf is not None)
        return cut(", ".join(there), 80)
    if value is None or isinstance(value, int | str | range | bool | dict):
        return cut(repr(value))
    return cut(str(value)) if " at 0x" not in repr(value) else f"a {type(value).__name__}"


def show_apart(one: Any, other: Any) -> tuple[str, str]:
    """Both values, with as many digits as it takes to see that they differ."""
    here, there = dict(leaves(one)), dict(leaves(other))
    apart = [(here[at], there[at]) for at in here.keys() & there.keys()
             if not same(here[at], there[at])]  # fmt: skip
    enough = (d for d in (6, 9, 12, 17) if all(show(a, d) != show(b, d) for a, b in apart))
    digits = next(enough, 6)
    return show(one, digits), show(other, digits)


def cut(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 2] + " …"


def _show_tensor(t: Tensor, digits: int) -> str:
    flat = t.detach().flatten()
    words = [f"{v:.{digits}g}" if isinstance(v, float) else str(v) for v in flat[:10].tolist()]
    text = ", ".join(words + ["…"] * (len(flat) > 10))
    kind = "" if t.dtype == torch.float32 else f" {t.dtype}".replace("torch.", "")
    shape = "" if t.dim() == 1 else f" shape {tuple(t.shape)}"
    return f"[{text}]{kind}{shape}"
