"""The mode that lets a script say "cuda": it marks where tensors lie, and refuses what torch would.

    x = torch.ones(3, device="cuda")     made on the CPU, its storage marked 0
    x.device                             cuda:0
    model(torch.ones(3))                 RuntimeError: Expected all tensors to be on the same device

tensor_place.py says what a mark is, and what it means to have none.

Note [Inside of a function of torch's]. A mode is off while torch runs the function that it was
asked about. Backward hooks and DTensor call Python again from in there and say "cuda" too, so
``keeps_on`` puts the mode on again for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from course_sim.gpu.only_on_gpus import ONLY_ON_GPUS, attend
from course_sim.gpu.tensor_place import HOST, find_place, mark, name_place, place_of, storage_of
from course_sim.isolation import compat
from course_sim.rank import Rank, current

_MIXED = "Expected all tensors to be on the same device, but found at least two devices, {} and {}!"
# Functions for which torch refuses tensors from two places, unless one is a single number.
_OPERATORS = {
    "linear bilinear matmul mm bmm addmm baddbmm einsum dot mv conv1d conv2d conv3d embedding",
    "add sub mul div add_ sub_ mul_ div_ __matmul__ __add__ __sub__ __mul__ __truediv__ __iadd__",
    "__isub__ __imul__ __radd__ __rmul__ cat stack where lerp lerp_ addcmul addcdiv layer_norm",
    "batch_norm cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss binary_cross_entropy",
    "binary_cross_entropy_with_logits kl_div scaled_dot_product_attention eq ne lt gt __eq__",
    "gather index_select masked_fill _foreach_lerp_ _foreach_addcmul_ _foreach_addcdiv_",
}
_NAME_DEVICES = {torch.device, torch._C._nn._parse_to}  # and put nothing there
_REFUSE_MIXED = {name for names in _OPERATORS for name in names.split()}


def keeps_on(original: Any) -> Any:
    """A function in which a rank's mode goes on: see Note [Inside of a function of torch's]."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        rank = current()
        if rank is None or compat.function_modes():
            return original(*args, **kwargs)
        with Placement(rank):
            return original(*args, **kwargs)

    return call


def guesses_place(original: Any) -> Any:
    """A backward pass, in which gradients that nobody has marked lie where its outputs do."""
    on = keeps_on(original)

    @functools.wraps(original)
    def call(outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        if (rank := current()) is None:
            return original(outputs, *args, **kwargs)
        before, rank.gpu.guess = rank.gpu.guess, _place_of_results_of(outputs)
        try:
            return on(outputs, *args, **kwargs)
        finally:
            rank.gpu.guess = before

    return call


def marks_results(original: Any) -> Any:
    """A function whose results are marked as an operator's are."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        out = original(*args, **kwargs)
        for tensor in _find_tensors((out,)) if current() else ():
            mark(tensor, _place_of_results_of(args))
        return out

    return call


class Placement(TorchFunctionMode):
    """The mode in which a rank's thread runs a script for GPUs."""

    def __init__(self, rank: Rank) -> None:
        super().__init__()
        self._rank = rank

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        # streams.py has wrapped the functions that look at a value; the rules name the originals.
        if rule := _RULES.get(getattr(function, "__wrapped__", function)):
            return rule(self._rank, function, *args, **kwargs)
        target = None
        if self._rank.gpu.default is not None and function in _device_constructors():
            kwargs.setdefault("device", self._rank.gpu.default)
        if "device" in kwargs and function not in _NAME_DEVICES:
            target, kwargs["device"] = _take_device(kwargs["device"], self._rank)
        kwargs.pop("pin_memory", None)
        _refuse_generator(kwargs.get("generator"), target)
        given = list(_find_tensors((*args, *kwargs.values())))
        places = [place_of(tensor) for tensor in given]
        if getattr(function, "__name__", "") in _REFUSE_MIXED:
            _refuse_mixed(given, places)
        out = ONLY_ON_GPUS.get(function, function)(*args, **kwargs)
        named = target is not None
        if not named:
            target = _place_of_result(places)
        for tensor in _find_tensors((out,)):
            mark(tensor, target, again=named)
        return out


def _find_tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among values, and those in lists of them. It looks no deeper: what a script makes
    tensors of may be long lists of lists.
    """
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, Tensor))


def _place_of_result(places: Sequence[int | None]) -> int | None:
    """Where something lies that was made of tensors in these: on their GPU, if there is one."""
    if not places:
        return HOST
    best = max((place for place in places if place is not None), default=None)
    return None if best == HOST and None in places else best


def _place_of_results_of(values: Iterable[Any]) -> int | None:
    return _place_of_result([place_of(tensor) for tensor in _find_tensors(values)])


def _guess_place(rank: Rank, tensor: Tensor) -> int | None:
    """See Note [What nobody has marked] in tensor_place.py."""
    place = place_of(tensor)
    return rank.gpu.guess if place is None else place


def _take_device(device: Any, rank: Rank) -> tuple[int | None, Any]:
    """The place that is asked for, and the device on which the tensor really is made."""
    place = find_place(device, rank)
    return place, device if place is None else name_place(HOST)


def _refuse_generator(generator: Any, target: int | None) -> None:
    """Raise as torch does for a generator of the host that is to draw on a GPU, and the reverse."""
    if generator is None or target is None:
        return
    draws, wanted = generator.device.type, name_place(target).type
    if draws != wanted:
        raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{draws}'")


def _refuse_mixed(given: Sequence[Tensor], places: Sequence[int | None]) -> None:
    """Raise as torch does for tensors of several places; a single number may come from the host."""
    if len({*places}) > 1:
        matter = {p for p, x in zip(places, given, strict=True) if p != HOST or x.dim()}
        known = sorted((place for place in matter if place is not None), reverse=True)
        if len(known) > 1:
            raise RuntimeError(_MIXED.format(*map(name_place, known[:2])))


# ---- functions that are about places ------------------------------------------------------------


def _move(rank: Rank, function: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """``to``: a copy, where the place is another one."""
    target = None
    if args and isinstance(args[0], (str, int, torch.device)):
        target, device = _take_device(args[0], rank)
        args = device, *args[1:]
    elif args and isinstance(args[0], Tensor):
        target = place_of(args[0])
    if kwargs.get("device") is not None:
        target, kwargs["device"] = _take_device(kwargs["device"], rank)
    return _settle(rank, tensor, function(tensor, *args, **kwargs), target)


def _move_to_gpu(
    rank: Rank, _: Any, tensor: Tensor, device: Any = None, *__: Any, **___: Any
) -> Tensor:
    return _settle(rank, tensor, tensor, find_place("cuda" if device is None else device, rank))


def _move_to_host(rank: Rank, function: Any, tensor: Tensor, **how: Any) -> Tensor:
    return _settle(rank, tensor, function(tensor, **how), HOST)


def _settle(rank: Rank, before: Tensor, after: Tensor, target: int | None) -> Tensor:
    """What became of a tensor that was to be in this place; None if it was to stay."""
    came_from = place_of(before)
    shared = storage_of(before) is storage_of(after)
    if target in (None, came_from):
        mark(after, came_from, again=not shared)
        return after
    if shared and after.device.type == "cpu":
        after = rank.gpu.copy(after)
    mark(after, target, again=True)
    return after


def _say_device(rank: Rank, function: Any, tensor: Tensor) -> torch.device:
    real, place = function(tensor), _guess_place(rank, tensor)
    return real if place is None or real.type != "cpu" else name_place(place)


def _is_cuda(rank: Rank, function: Any, tensor: Tensor) -> bool:
    return _guess_place(rank, tensor) not in (None, HOST)


def _is_cpu(rank: Rank, function: Any, tensor: Tensor) -> bool:
    return function(tensor) and not _is_cuda(rank, function, tensor)


def _get_device(rank: Rank, function: Any, tensor: Tensor) -> int:
    place = _guess_place(rank, tensor)
    return function(tensor) if place is None else place


def _give_to_numpy(rank: Rank, function: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    if _is_cuda(rank, function, tensor):
        raise TypeError(
            f"can't convert {name_place(place_of(tensor) or 0)} device type tensor "
            "to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return function(tensor, *args, **kwargs)


def _show(rank: Rank, function: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> str:
    text = function(tensor, *args, **kwargs)
    if not _is_cuda(rank, function, tensor) or not text.endswith(")"):
        return text
    return f"{text[:-1]}, device='{name_place(place_of(tensor) or 0)}')"


def _pin(rank: Rank, function: Any, tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    if _is_cuda(rank, function, tensor):
        raise RuntimeError("cannot pin a tensor of a GPU: only dense CPU tensors can be pinned")
    return tensor


def _index(rank: Rank, function: Any, tensor: Tensor, index: Any) -> Tensor:
    places = map(place_of, _find_tensors(index if isinstance(index, tuple) else (index,)))
    if place_of(tensor) == HOST and any(place not in (None, HOST) for place in places):
        raise RuntimeError("indices should be on cpu, as the indexed tensor is")
    mark(out := function(tensor, index), place_of(tensor))
    return out


def _pack(rank: Rank, function: Any, tensor: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    """A packed sequence, and how many rows there are at each step, which stays on the host."""
    data, sizes = function(tensor, *args)
    mark(data, place_of(tensor))
    mark(sizes, HOST)
    return data, sizes


def _attend(rank: Rank, function: Any, query: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    if isinstance(query, DTensor):
        return attend(function, query, *args, **kwargs)
    out = function(query, *args, **kwargs)
    mark(out, place_of(query))
    return out


def _getter(name: str) -> Any:
    return getattr(Tensor, name).__get__


_RULES: dict[Any, Callable[..., Any]] = {
    Tensor.to: _move,
    Tensor.cuda: _move_to_gpu,
    Tensor.cpu: _move_to_host,
    Tensor.pin_memory: _pin,
    Tensor.__getitem__: _index,
    _getter("device"): _say_device,
    _getter("is_cuda"): _is_cuda,
    _getter("is_cpu"): _is_cpu,
    Tensor.get_device: _get_device,
    Tensor.numpy: _give_to_numpy,
    Tensor.__array__: _give_to_numpy,
    Tensor.__repr__: _show,
    torch.nn.functional.scaled_dot_product_attention: _attend,
    torch._VF._pack_padded_sequence: _pack,
}
