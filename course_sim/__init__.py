"""Simulated ranks: a thousand of them in one process, on a modelled network, the same every time.

README.md follows one call through the files.
Nothing of torch is imported before the first simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from course_lib.errors import CourseError, interruptible
from course_lib.trace import Run
from course_sim.network import Network
from course_sim.true_size.hardware import GPU

__all__ = ["GPU", "Network", "simulate"]

_DEFAULT = Network()


@interruptible("simulate()")
def simulate(
    fn: Callable,
    *args: Any,
    world_size: int,
    network: Network = _DEFAULT,
    buffered: bool = False,
    seed: int = 0,
    limit: float = 60.0,
    backend: str = "gloo",
    init: bool = True,
    cuda: bool = False,
    gpu: GPU | None = None,
    play: Collection[int] | None = None,
) -> Run:
    """Run ``fn(*args)`` on every rank of a simulated world, in virtual time.

    ``fn`` is the same plain torch.distributed code that ``run`` takes; inside it the default
    process group is ready, unless ``init`` is False. Each rank has its own copy of the function,
    its globals and arguments, and imports the user's own modules for itself.

    Args:
        fn: called once on every rank.
        *args: any picklable values; each rank gets its own copy.
        world_size: number of ranks.
        network: what messages cost; see ``Network`` for its presets.
        buffered: True lets a message set off before its recv is posted. By default it waits for
            that (rendezvous), as gloo does, and NCCL for large messages.
        seed: breaks ties between ranks that are ready at the same time, and draws the network's
            jitter. Equal seeds give equal traces.
        limit: seconds of the processor after which the ranks are stopped and a Hang is raised; of
            the wall, where they stand still.
        backend: whose rules are modelled: "gloo", or "nccl", with a GPU and its streams for each
            rank; tensors stay on the CPU, as ``device()`` says.
        init: False leaves ``dist.init_process_group`` to ``fn``; the ranks are started with what
            torchrun would set.
        cuda: True lets ``fn`` say "cuda": what it asks of CUDA is answered, and each tensor knows
            whether it lies on its rank's modelled GPU. Needs ``backend="nccl"``.
        gpu: a GPU, as ``GPU.h100()``, for a run at its true size (with ``backend="nccl"``): tensors
            have shapes and no values, and each kernel takes the time that this GPU would need. With
            ``cuda``, too, ``item()`` gives a number for log lines, and says so.
        play: the ranks that run, where they stand for others that do the same, as ``[0]``; the
            others' results are None. It needs ``gpu``. By default all ranks run.

    Returns:
        A Run: ``results`` by rank, ``trace``, ``output``, and ``seconds``, the last rank's clock.
        All times in it are virtual. With ``gpu`` it has ``kernels`` and ``memory``, too.

    Raises:
        RankFailed, RankDied, Deadlock, Mismatch, Hazard, Hang: see ``course_lib.errors``;
        CourseError for bad arguments, and where this torch cannot simulate.
    """
    from course_sim.isolation import compat

    if problem := compat.missing():
        raise CourseError(problem)

    from course_sim import engine

    how = network, buffered, seed, limit, backend, init, cuda, gpu, play
    return engine.simulate(fn, args, world_size, *how)
