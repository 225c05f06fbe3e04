"""How ranks meet: what torchrun tells each of them, and what ``init_process_group`` may ask for.

Both engines stand in for torchrun. Whatever address and port a script writes into its environment,
its ranks meet in a store that exists already: no port has to be free.
"""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

# Where torch's ``env://`` and ``tcp://`` make the store in which ranks meet. The module is imported
# by its name because ``dist.rendezvous`` is the function of the same name.
CREATE_STORE = (importlib.import_module("torch.distributed.rendezvous"), "_create_c10d_store")

AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"  # says that a store is hosted at MASTER_PORT


def torchrun_names(rank: int, world_size: int, here: int = 0) -> dict[str, str]:
    """What torchrun tells a rank on a machine that holds ``here`` of them, or all."""
    here = here or world_size
    ranks = dict.fromkeys(("RANK", "ROLE_RANK"), str(rank))
    sizes = dict.fromkeys(("WORLD_SIZE", "ROLE_WORLD_SIZE"), str(world_size))
    machine = {
        "LOCAL_RANK": str(rank % here),
        "LOCAL_WORLD_SIZE": str(here),
        "GROUP_RANK": str(rank // here),
        "GROUP_WORLD_SIZE": str(-(-world_size // here)),
    }
    return _ALWAYS | ranks | sizes | machine


_ALWAYS = {
    "ROLE_NAME": "default",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "TORCHELASTIC_RUN_ID": "none",
}


def check_place(rank: int, world_size: int, asked_rank: int, asked_size: int) -> None:
    """Raise ValueError if ``init_process_group`` names another world than the one that runs."""
    if asked_size != world_size:
        raise ValueError(
            f"init_process_group(world_size={asked_size}) among {world_size} ranks would wait for "
            'ever: leave world_size out, or give int(os.environ["WORLD_SIZE"])'
        )
    if asked_rank != rank:
        raise ValueError(
            f"init_process_group(rank={asked_rank}) on rank {rank}: each rank has a number of its "
            'own, so leave rank out, or give int(os.environ["RANK"])'
        )


def already_formed_text(engine: str) -> str:
    """The error for a function that forms the group although it exists already."""
    return (
        f"{engine} has formed the process group before the function begins: take "
        "init_process_group out of it, or give init=False"
    )


def meet_in(store: dist.Store, rank: int, world_size: int) -> Callable[..., dist.Store]:
    """What to put at CREATE_STORE in this process's rank: the k-th group that it forms at a port
    meets the k-th groups of the others, in a part of ``store`` that is theirs alone.
    """
    times: Counter[int] = Counter()
    usual, process = getattr(*CREATE_STORE), os.getpid()

    def create(
        host: str, port: int, asked_rank: int, asked_size: int, *more: Any, **how: Any
    ) -> Any:
        if os.getpid() != process:  # the rank has started ranks of its own: they meet elsewhere
            os.environ.pop(AGENT_STORE, None)
            return usual(host, port, asked_rank, asked_size, *more, **how)
        check_place(rank, world_size, asked_rank, asked_size)
        times[port] += 1
        return dist.PrefixStore(f"port {port}, group {times[port]}", store)

    return create
