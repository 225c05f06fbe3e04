"""The "modelled" column of course_sim/README.md, computed again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import course_sim
from course_sim import Network, simulate

README = Path(course_sim.__file__).with_name("README.md").read_text()
ROWS = re.findall(r"^\| ([^|]*A100[^|]*|[^|]*H100[^|]*) \| `([^`]+)` \| (\d+) \|", README, re.M)


def all_reduce(elements):
    dist.all_reduce(torch.zeros(1).expand(elements).contiguous())


@pytest.mark.parametrize(("cluster", "network", "modelled"), ROWS)
def test_modelled_bus_bandwidth_is_as_stated(cluster, network, modelled):
    """Extrapolated from two sizes that fit in memory: the slope is what a large message costs."""
    net = eval(network, {"Network": Network})
    n = (net.nodes or 1) * 8
    sizes = [2 << 20, 4 << 20]  # elements of 4 bytes
    seconds = [simulate(all_reduce, size, world_size=n, network=net).seconds for size in sizes]
    per_byte = (seconds[1] - seconds[0]) / (4 * (sizes[1] - sizes[0]))
    assert 2 * (n - 1) / n / per_byte / 1e9 == pytest.approx(float(modelled), rel=0.02)


def test_every_row_is_checked():
    assert len(ROWS) == 4
