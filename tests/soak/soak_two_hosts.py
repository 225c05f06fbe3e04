"""The training script on two hosts: two network namespaces with an address each and a slow link
between them, an agent of torchrun in each, and a disk that both share, or none.

Skipped where this user may not make network namespaces. The link is shaped by tc's token bucket,
which more kernels have than netem.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from test_jobs import ENVIRONMENT, JOBS

PORT, RATE = 29400, "200mbit"
EPOCH = re.compile(r"epoch (\d+)  loss (\S+)")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Host:
    """A network namespace. ``run`` starts an agent in it; ``close`` kills all that is in it."""

    def __init__(self, name: str, address: str):
        self.name, self.address = name, address
        ip("netns", "add", name)

    def connect(self, end: str) -> None:
        ip("link", "set", end, "netns", self.name)
        ip("-n", self.name, "link", "set", end, "name", "eth0")
        ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", self.name, "link", "set", device, "up")
        shape = ["root", "tbf", "rate", RATE, "burst", "64kb", "latency", "50ms"]
        ip("netns", "exec", self.name, "tc", "qdisc", "add", "dev", "eth0", *shape)

    def run(
        self, meeting: Host, checkpoint: Path, own_disk: str = "", restarts: int = 3
    ) -> subprocess.Popen[str]:
        # ip gives each command mounts of its own: what is mounted here no other host sees.
        mount = ["sh", "-c", f'mount -t tmpfs none {own_disk} && exec "$@"', "sh"]
        command = [
            *("ip", "netns", "exec", self.name, *(mount if own_disk else [])),
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"),
            *(f"--max-restarts={restarts}", f"--local-addr={self.address}"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint={meeting.address}:{PORT}", "--rdzv-id=7"),
            f"--rdzv-conf=is_host={self is meeting}",
            *(str(JOBS / "train.py"), "--epochs=6", f"--checkpoint={checkpoint}"),
        ]
        environment = ENVIRONMENT | {
            "GLOO_SOCKET_IFNAME": "eth0",
            # torch 2.15: an agent that has once been the first does not tell the address of its
            # store again to one that comes later (pytorch#135712).
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        return subprocess.Popen(
            command,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def kill(self) -> None:
        """As if somebody had pulled the plug: every process on this host at once."""
        found = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True)
        for pid in map(int, found.stdout.split()):
            os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        ip("netns", "del", self.name)


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        pytest.skip("needs root, ip and tc")
    try:
        ip("netns", "add", probe := f"course-{os.getpid()}")
        ip("netns", "del", probe)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    made: list[Host] = []
    try:
        ends = [f"c{k}-{os.getpid()}" for k in (1, 2)]
        made += [Host(f"course-{end}", f"10.77.0.{k}") for k, end in enumerate(ends, 1)]
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for host, end in zip(made, ends, strict=True):
            host.connect(end)
        yield made
    finally:
        for host in made:
            host.close()


def losses(*outputs: str) -> dict[str, str]:
    return {number: loss for text in outputs for number, loss in EPOCH.findall(text)}


def test_a_host_that_dies_and_comes_back_changes_no_digit_of_the_training(
    hosts: list[Host], tmp_path: Path
):
    first, second = hosts
    agents = [host.run(first, tmp_path / "whole.pt") for host in hosts]
    whole = [agent.communicate(timeout=200)[0] for agent in agents]
    assert not any(agent.returncode for agent in agents), whole
    assert list(losses(*whole)) == list("012345")

    (tmp_path / "killed").mkdir()
    staying, dying = (host.run(first, tmp_path / "killed" / "digits.pt") for host in hosts)
    watched = dying if "epoch 0" in whole[1] else staying  # where rank 0 is, which prints
    said = ""
    assert watched.stdout is not None
    while "epoch 2" not in said:
        said += watched.stdout.readline()
    second.kill()
    back = second.run(first, tmp_path / "killed" / "digits.pt")
    rest = [agent.communicate(timeout=200)[0] for agent in (staying, back)]
    assert (staying.returncode, back.returncode) == (0, 0), rest
    assert "continues from digits.pt after epoch" in "".join(rest)

    assert losses(said, *rest) == losses(*whole)
    ends = [
        torch.load(path)["model"]
        for path in (tmp_path / "whole.pt", tmp_path / "killed" / "digits.pt")
    ]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    print(said, *rest, sep="\n----\n")


def test_hosts_without_a_shared_disk_are_told_so(hosts: list[Host], tmp_path: Path):
    agents = [
        host.run(hosts[0], tmp_path / "digits.pt", str(tmp_path), restarts=0) for host in hosts
    ]
    said = "".join(agent.communicate(timeout=200)[0] for agent in agents)
    assert all(agent.returncode for agent in agents), said
    assert f"rank 0 saves to {tmp_path}/digits.pt, and ranks [1] do not see it" in said
