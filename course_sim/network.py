"""What a message costs: a latency, a bandwidth, and queues where links are shared.

    sender             out-link                  in-link            receiver
    both at t     ──►  leaves at s          ──►  reached at s + α   has it all at
                       s = max(t, free)          or when free       start + S·β
                       held until s + S·β        held for S·β

t is when send and recv have both been posted; where sends are buffered, when it was sent.
α is ``latency`` in seconds, β = 1 / ``bandwidth`` in seconds per byte (Hockney 1994). The message
flows through (cut-through): alone on idle links it takes α + S·β, and two that go to the same rank
queue at its in-link. Links are full duplex, the switch between them is never full.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from course_lib.trace import Event

if TYPE_CHECKING:
    from course_sim.agenda import Agenda


def _preset(latency: float, bandwidth: float, what: str) -> Any:
    """A maker of such networks."""

    def make(cls: type[Network]) -> Network:
        return cls(latency=latency, bandwidth=bandwidth)

    make.__doc__ = f"{what}; about {latency * 1e6:g} µs, {bandwidth / 1e9:g} GB/s."
    return classmethod(make)


@dataclass(frozen=True)
class Network:
    """A modelled network. ``latency`` in seconds, ``bandwidth`` in bytes/s per rank and direction.

    ``jitter``: each message takes up to this much longer, as a fraction of its own α + S·β, drawn
    by the simulation's seed. ``collectives``: "textbook" charges each collective by formula (see
    costs.py), "messages" plays it as messages. ``zeros``: what a message or a collective brings is
    all zeros, of the right length and at the right time, for whoever asks what a program makes of
    what it is told.

    Raises ValueError for a negative or endless latency and for a bandwidth that is not positive.
    """

    latency: float = 5e-6
    bandwidth: float = 25e9
    jitter: float = 0.0
    collectives: str = "textbook"
    zeros: bool = False
    gpus_per_node: int | None = None  # None: every rank has a link of its own to one switch
    inter: Network | None = None  # joins the nodes: one link a node, shared by its ranks
    nodes: int | None = None

    def __post_init__(self) -> None:
        for name in ("latency", "bandwidth", "jitter"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and 0 <= value < math.inf):
                raise ValueError(f"Network({name}={value!r}): give a number of at least 0")
        if self.bandwidth == 0:
            raise ValueError("Network(bandwidth=0): nothing would ever arrive")
        if self.collectives not in ("textbook", "messages"):
            raise ValueError(
                f"Network(collectives={self.collectives!r}): choose 'textbook' or 'messages'"
            )

    @classmethod
    def cluster(
        cls,
        nodes: int,
        gpus_per_node: int,
        intra: Network | None = None,
        inter: Network | None = None,
    ) -> Network:
        """``nodes`` machines: inside one, ranks talk over ``intra``; between two, all ranks of a
        machine share one ``inter`` link out and one in. Ranks are numbered node by node.

        >>> Network.cluster(4, 8, intra=Network.nvlink4(), inter=Network.infiniband_ndr())
        """
        if nodes < 1 or gpus_per_node < 1:
            raise ValueError(
                f"Network.cluster({nodes}, {gpus_per_node}): give at least one of each"
            )
        return replace(
            intra or cls.nvlink4(),
            gpus_per_node=gpus_per_node,
            nodes=nodes,
            inter=inter or cls.infiniband_ndr(),
        )

    def seconds(self, nbytes: float) -> float:
        """α + S·β: one message of ``nbytes`` bytes on idle links."""
        return self.latency + nbytes / self.bandwidth

    # Bandwidths are what the standards promise for one direction, less their line coding;
    # latencies are typical published ping-pong figures. course_sim/README.md has the sources.
    ethernet_10g = _preset(25e-6, 1.25e9, "10 Gb/s Ethernet with TCP: IEEE 802.3ae")
    ethernet_100g = _preset(5e-6, 12.5e9, "100 Gb/s Ethernet with RoCE: IEEE 802.3ba")
    infiniband_ndr = _preset(2e-6, 50e9, "InfiniBand NDR, 400 Gb/s a port")
    pcie5 = _preset(3e-6, 63e9, "PCI Express 5.0 ×16: 32 GT/s × 16 lanes × 128/130")
    nvlink4 = _preset(2e-6, 450e9, "NVLink 4 through NVSwitch (H100): 18 links × 25 GB/s")


class Link:
    """One direction of one port: busy until ``free``."""

    __slots__ = ("coming", "free")

    def __init__(self) -> None:
        self.free = 0.0
        self.coming = 0  # messages on their way whose turn at this in-link is not settled


class Fabric:
    """The links of one simulation, and until when messages hold them."""

    def __init__(self, network: Network, world_size: int, seed: int) -> None:
        self.network = network
        self._draw = random.Random(f"jitter {seed}").random if network.jitter else None
        self._announced = random.Random(f"late {seed}").random
        self._out = [Link() for _ in range(world_size)]
        self._in = [Link() for _ in range(world_size)]
        self._per_node = network.gpus_per_node or world_size
        if network.nodes and world_size > network.nodes * self._per_node:
            raise ValueError(
                f"world_size={world_size} does not fit on {network.nodes} nodes of "
                f"{self._per_node} ranks"
            )
        nodes = -(-world_size // self._per_node)
        self._up = [Link() for _ in range(nodes)]
        self._down = [Link() for _ in range(nodes)]
        self._least = min(network.latency, (network.inter or network).latency)

    def route(self, src: int, dst: int) -> tuple[Link, Link, float, float]:
        """Out-link, in-link, α and β between two ranks."""
        net = self.network
        if net.inter is None or src // self._per_node == dst // self._per_node:
            return self._out[src], self._in[dst], net.latency, 1 / net.bandwidth
        up, down = self._up[src // self._per_node], self._down[dst // self._per_node]
        return up, down, net.inter.latency, 1 / net.inter.bandwidth

    def send(
        self, agenda: Agenda, op: Event, delivered: Callable[[float], None], drawn: bool
    ) -> tuple[float, float]:
        """Put a message on its way now; returns when its last byte has left and when its first
        reaches the in-link. ``delivered(time)`` is called as soon as it is known when all is in.
        ``drawn``: its lateness was, when it was announced, by ``draw_lateness``.
        """
        now, dst = agenda.now, op.peer
        assert dst is not None
        out, into, alpha, beta = self.route(op.rank, dst)
        takes = op.nbytes * beta
        start = now if now > out.free else out.free
        out.free = left = start + takes
        arrives = start + alpha
        if self._draw is not None and not drawn:
            arrives += self.network.jitter * self._draw() * (alpha + takes)

        def arrive(waiting: int = 1) -> None:
            into.coming -= waiting
            into.free = end = max(arrives, into.free) + takes
            delivered(end)

        # In-links serve in order of arrival. Nothing sent later can arrive before now + the least
        # latency, so most messages can be settled at once; the others when their time comes.
        if arrives <= now + self._least and not into.coming:
            arrive(0)
            return left, arrives
        into.coming += 1
        agenda.schedule(arrives, arrive)
        return left, arrives

    def draw_lateness(self, nbytes: int) -> float:
        """By how much a send is announced late. It has a generator of its own, as some programs
        never ask, and all other draws have to stay the same.
        """
        jitter = self.network.jitter
        return jitter and jitter * self._announced() * self.network.seconds(nbytes)

    def cost_between(self, ranks: Sequence[int]) -> tuple[float, float]:
        """α and β that a collective over ``ranks`` is charged: those of its slowest link."""
        net = self.network
        nodes = {r // self._per_node for r in ranks}
        used = [net] if net.inter is None or len(nodes) == 1 else [net, net.inter]
        return max(n.latency for n in used), max(1 / n.bandwidth for n in used)
