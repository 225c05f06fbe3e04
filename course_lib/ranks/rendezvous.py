"""Where ranks find one another, and what their environment tells them."""

from __future__ import annotations

import os

import torch.distributed as dist

from course_lib.ranks.log import nameless_file

# torch's TCP store looks up the name of every address it meets, 127.0.0.1 too, and waits for the
# answer: five seconds and more where the name server is out of reach. See resolv.conf(5).
_SHORT_LOOKUPS = "timeout:1 attempts:1"


class Store:
    """Where ranks find one another.

    A world that forms its group itself meets in a file without a name, which takes no port and
    asks no name server. A function that calls ``init_process_group`` itself is given what torchrun
    would give it: a TCP store that is already hosted, on a port that the system chose.
    """

    def __init__(self, hosted: bool) -> None:
        self.fd, self.port = nameless_file("store"), 0
        self._tcp: dist.TCPStore | None = None
        if hosted:
            usual = os.environ.get("RES_OPTIONS")
            os.environ.setdefault("RES_OPTIONS", _SHORT_LOOKUPS)
            try:
                self._tcp = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            finally:
                if usual is None:
                    del os.environ["RES_OPTIONS"]
            self.port = self._tcp.port

    def close(self) -> None:
        """Give back the file, and the port if there is one."""
        os.close(self.fd)
        self._tcp = None


def rank_environment() -> dict[str, str]:
    """This process's environment, with what keeps ranks on one machine quick.

    A world that was started in another environment cannot be used any more.
    """
    environ = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    environ.setdefault("OMP_NUM_THREADS", "1")
    environ.setdefault("RES_OPTIONS", _SHORT_LOOKUPS)
    environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return environ


def torchrun_env(rank: int, world_size: int, port: int) -> dict[str, str]:
    """What torchrun sets for a rank of a one-node job, so that ``env://`` works."""
    environ = {"RANK": str(rank), "LOCAL_RANK": str(rank),
               "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size)}  # fmt: skip
    if port:
        environ |= {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0",
        }  # fmt: skip
    return environ
