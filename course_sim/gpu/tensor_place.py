"""Where a tensor lies, in ranks that say "cuda": in the host's memory, or on one of its GPUs.

All values lie on the CPU. What a script sees is kept beside them, as the attribute ``place`` of the
tensor's storage: the number of a GPU, or HOST. Views, ``.data`` and parameters share a storage, and
so they share its place; nothing has to be carried from one tensor to the next.

Note [What nobody has marked]. Only calls from Python are seen. What C++ makes by itself, as a
gradient or a bucket of DDP, has no mark, and counts as being wherever it is needed. So nothing is
refused that would run on a GPU; a wrong tensor may be seen one call later than torch sees it.
Where backward asks for its device, it is that of the outputs.
tests/course_sim/test_cuda.py has what is told and what has to pass.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from course_sim.rank import Rank

HOST = -1
CPU = torch.device("cpu")
_PLAIN = {Tensor, torch.nn.Parameter}  # other classes may wrap a tensor, whose storage counts


def place_of(tensor: Tensor) -> int | None:
    """The number of the tensor's GPU, HOST, or None if nobody knows."""
    return getattr(storage_of(tensor), "place", None)


def mark(tensor: Tensor, place: int | None, again: bool = False) -> None:
    """Note where a tensor lies that has just been made. What is known stays, unless ``again``: a
    function that was told a place may have called others, for which it was the CPU.
    """
    storage = storage_of(tensor)
    if None not in (storage, place) and (again or not hasattr(storage, "place")):
        storage.place = place


def storage_of(tensor: Any) -> Any:
    """The storage that holds the tensor's values; None if it has none of its own."""
    if type(tensor) not in _PLAIN:
        tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # a sparse tensor
        return None


def find_place(device: Any, rank: Rank) -> int | None:
    """The place that a script names: "cuda", "cuda:1", 1, "cpu", a torch.device. None for others,
    as "meta". Raises as CUDA does if this machine has no such GPU.
    """
    if device is None:
        return None
    named = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if named.type != "cuda":
        return HOST if named.type == "cpu" else None
    index = rank.gpu.index if named.index is None else named.index
    if index >= (count := len(find_gpus(rank))):
        problem = f"there is no GPU {index}, as this machine has {count}"
        raise torch.AcceleratorError(f"CUDA error: invalid device ordinal: {problem}")
    if rank.gpu.in_worker and rank.gpu.used:
        raise RuntimeError(
            "Cannot re-initialize CUDA in forked subprocess: let workers of a DataLoader return "
            "tensors of the host, and move them in the loop"
        )
    rank.gpu.used.add(index)
    return index


def find_gpus(rank: Rank) -> list[int]:
    """The GPUs that the rank sees, by their number in the machine. CUDA_VISIBLE_DEVICES comes too
    late once one of them is in use.
    """
    if not rank.gpu.used:
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        here = range(int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        rank.gpu.visible = [int(word) for word in named.split(",")] if named else [*here]
    return rank.gpu.visible


def name_place(place: int) -> torch.device:
    return CPU if place == HOST else torch.device("cuda", place)
