"""What a rank hands over: its piece of each gradient, and where the piece lies in the whole.

    rank 1 of a mesh dp 2 × tp 2             w1.weight of 16 × 8, cut by tp, then by dp
    gradients(model)["w1.weight"]            Piece(tensor of 4 × 8, place, mesh)
      place   (((8, 12),), ((0, 8),))        rows 8 to 11 of the whole, and all its columns
      mesh    {"dp": 0, "tp": 1}             who else holds these entries is told by the places

A piece is plain: it can be returned from a rank of ``run``, pickled, or saved by ``torch.save``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast

import torch
from torch import Tensor, nn

from course_lib.errors import CourseError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Runs = tuple[tuple[int, int], ...]  # from an index of the whole up to, not including, another
Place = tuple[Runs, ...]  # for each dimension, the indices of the whole that a piece has
WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")


class Piece(NamedTuple):
    """A rank's piece of a gradient; ``place`` is None if only its shape can tell where it lies."""

    tensor: Tensor | None
    place: Place | None = None
    mesh: Mapping[str, int] = {}  # the rank's coordinate, by the mesh dimension's name


# This allows torch.load() to read a Piece from a file, as it reads tensors.
torch.serialization.add_safe_globals([Piece])


def gradients(
    model: nn.Module | Mapping[str, Tensor],
    places: Mapping[str, Mapping[int, Sequence[int]]] | None = None,
) -> dict[str, Tensor | Piece | None]:
    """This rank's gradients by name, for ``compare_gradients``: copies, on the CPU.

    A parameter that is a DTensor gives a Piece: the rank's part of the gradient *in the
    parameter's placements*, which is what an optimizer's step sees, and its place in the whole.
    Bringing a gradient into these placements is a collective, so every rank of the parameter's
    mesh has to call this. A plain parameter gives its ``.grad`` as it is.

    Args:
        model: the module, or its parameters by name.
        places: for parameters that were cut by hand, which indices of the whole this rank holds,
            by name and dimension: ``{"qkv.weight": {0: [0, 1, 6, 7]}}``. Other dimensions are
            whole. Without it the shapes have to tell. A flat shard has dimension 0 alone, and
            its indices count the entries of the flattened whole.

    Returns:
        by name, without the prefixes of wrappers (``module.``, ``_orig_mod.``,
        ``_checkpoint_wrapped_module.``), a tensor, a Piece, or None where there is no gradient.

    Raises:
        CourseError: ``places`` has a name or a number of indices that the model has not.
    """
    places, found = places or {}, dict(_name_parameters(model))
    if unknown := places.keys() - found.keys():
        raise CourseError(f"places names {min(unknown)!r}, which is no parameter: {[*found]}")
    pieces = {}
    for name, p in found.items():
        grad = None if p.grad is None else p.grad.detach()
        if is_dtensor(p):
            if p.device_mesh.get_coordinate() is None:
                continue  # the rank is not in this parameter's mesh
            if is_dtensor(grad):
                grad = grad.redistribute(placements=p.placements).to_local()
        copy = None if grad is None else grad.to("cpu", copy=True)
        by_hand = name in places and _place_by_hand(name, p, places[name])
        placed = _place_dtensor(p, copy) if is_dtensor(p) else copy
        pieces[name] = Piece(copy, by_hand) if by_hand else placed
    return pieces


def is_dtensor(t: Any) -> TypeGuard[DTensor]:
    """Importing torch.distributed.tensor to ask takes a second, so this looks for a method."""
    return hasattr(t, "to_local")


def _name_parameters(model: nn.Module | Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Name the parameters, without the prefixes of wrappers."""
    if not isinstance(model, nn.Module):
        yield from model.items()
        return
    for name, p in model.named_parameters():
        kept, at = [], model
        for part in name.split("."):
            # A module whose only content is a child that it calls "module" is a wrapper.
            alone = part == "module" and [*dict(at.named_children())] == ["module"]
            wraps = part in WRAPPERS or (alone and not at._parameters)
            kept += [] if wraps else [part]
            at = getattr(at, part)
        yield ".".join(kept), p


def _place_by_hand(name: str, p: Tensor, held: Mapping[int, Sequence[int]]) -> Place:
    """The place of a parameter that was cut by hand, by the indices that its rank holds."""
    for dim, indices in held.items():
        if dim not in range(p.dim()) or len(indices) != p.shape[dim]:
            raise CourseError(
                f"places has {len(indices)} indices of {name!r} in dimension {dim}: its shape "
                f"on this rank is {tuple(p.shape)}"
            )
    ranges = (held.get(dim, range(length)) for dim, length in enumerate(p.shape))
    return tuple(_find_runs(torch.tensor([*each], dtype=torch.long)) for each in ranges)


def _place_dtensor(p: DTensor, tensor: Tensor | None) -> Piece:
    """Find where a rank's part lies: split the indices of each dimension as DTensor does."""
    mesh, place = p.device_mesh, []
    at, placements = mesh.get_coordinate() or (), cast("Any", p.placements)
    for dim, length in enumerate(p.shape):
        held = torch.arange(length).view([-1 if d == dim else 1 for d in range(p.dim())])
        for index, size, how in zip(at, mesh.shape, placements, strict=True):
            if getattr(how, "dim", None) == dim:  # a Shard, or a _StridedShard
                held = how._split_tensor(held, size, with_padding=False)[0][index]
        place.append(_find_runs(held.flatten()))
    names = mesh.mesh_dim_names or tuple(f"mesh dimension {dim}" for dim in range(mesh.ndim))
    return Piece(tensor, tuple(place), dict(zip(names, at, strict=True)))


def _find_runs(indices: Tensor) -> Runs:
    """Put indices into runs of neighbours."""
    breaks = (indices.diff() != 1).nonzero().flatten() + 1
    runs = indices.tensor_split(breaks.tolist())
    return tuple((int(run[0]), int(run[-1]) + 1) for run in runs if len(run))
