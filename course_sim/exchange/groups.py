"""Groups: what is one for all ranks of each, and the order in which ranks make them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import torch.distributed as dist

from course_lib.diagnosis import mismatch
from course_lib.errors import CourseError
from course_lib.trace import Event
from course_sim.exchange.collective import Collectives
from course_sim.exchange.combine import Passed
from course_sim.exchange.mail import Mail
from course_sim.isolation import compat
from course_sim.network import Fabric
from course_sim.rank import Call, Rank
from course_sim.records import Site, call_site, make_op
from course_sim.scheduler import Scheduler


@dataclass(frozen=True)
class Channel:
    """One group, as its ranks share it."""

    name: str  # that its Events carry
    ranks: tuple[int, ...]
    members: dict[int, int]  # from a rank's number to that in the group
    mail: Mail
    collectives: Collectives


def name_in_trace(rank: Rank, name: str) -> str:
    """A group's name in the trace; torch counts anew after destroy_process_group()."""
    return f"{name}#{rank.worlds}" if rank.worlds > 1 else name


class Groups:
    """All groups of one simulation, and the order in which ranks make them."""

    mail = Mail
    collectives = Collectives

    def __init__(self, scheduler: Scheduler, fabric: Fabric, buffered: bool, init: bool) -> None:
        """``init``: whether the default group is there before the function begins."""
        self.scheduler = scheduler
        self.fabric = fabric
        self.buffered = buffered
        self.init = init
        self.wires = [0.0] * len(scheduler.ranks)  # by rank, when its last collective ends
        self.store = compat.store()
        self.channels: dict[tuple[str, tuple[int, ...]], Channel] = {}
        # the k-th making, by rank: who is to be in the group, and the call
        self._made: defaultdict[int, dict[int, tuple[tuple[int, ...], Event]]] = defaultdict(dict)
        self._next = [count().__next__ for _ in scheduler.ranks]
        self.world = self.join(scheduler.ranks[0], "0", range(len(scheduler.ranks)))
        self.stores: defaultdict[object, dist.Store] = defaultdict(dist.HashStore)  # see store.py

    def check(self, rank: Rank) -> None:
        """Raise if this rank's groups may not be used now."""
        self.scheduler.check(rank)

    @property
    def names(self) -> dict[str, tuple[int, ...]]:
        """Each group's ranks, by the name that its Events carry."""
        return {channel.name: channel.ranks for channel in self.channels.values()}

    def form(self, rank: Rank) -> Channel:
        """The rank joins a new default group; its groups from now on are those of this world."""
        rank.worlds += 1
        return self.join(rank, "0", range(len(self.scheduler.ranks)))

    def has_default_group(self, rank: Rank) -> bool:
        """Whether the rank's default group is the one that was ready when its function began."""
        return self.init and rank.worlds == 1

    def form_again(self, rank: Rank, backend: str) -> Channel:
        """What ``init_process_group`` asks for."""
        ours = self.scheduler.backend
        if backend != "undefined" and ours not in backend:  # as in "cpu:gloo,cuda:nccl"
            raise RuntimeError(
                f"init_process_group({backend!r}): this world is simulated with "
                f"backend={ours!r}, which simulate() takes as an argument"
            )
        self._compare(rank, "init_process_group", self.world.ranks, call_site())
        return self.form(rank)

    def join(self, rank: Rank, name: str, ranks: Sequence[int]) -> Channel:
        """The group that this rank means by a name."""
        known = name_in_trace(rank, name)
        key = (known, tuple(ranks))
        if key not in self.channels:
            taken = any(n == known for n, _ in self.channels)  # split_group: equal names, others
            label = f"{known}:{ranks[0]}" if taken else known
            members = {r: i for i, r in enumerate(ranks)}
            mail = self.mail(self, label, members)
            collectives = self.collectives(self, label, members)
            self.channels[key] = Channel(label, key[1], members, mail, collectives)
        return self.channels[key]

    def make(
        self, rank: Rank, op: str, name: str, ranks: Sequence[int], local: bool, site: Site
    ) -> Channel | None:
        """This rank's part in ``new_group`` or ``split_group``; None if it is no member.

        All ranks of the world make groups in the same order, unless the call is ``local``.
        Members wait for one another, as gloo's do.
        """
        if not local:
            self._compare(rank, op, tuple(ranks), site)
        if rank.number not in ranks:
            return None
        channel = self.join(rank, name, ranks)
        group = name_in_trace(rank, "0")
        channel.collectives.issue(rank, Passed(op, [], [], site), group).wait()
        return channel

    def _compare(self, rank: Rank, name: str, ranks: tuple[int, ...], site: Site) -> None:
        """Raise if this rank's next group is not the one that others have made as theirs."""
        made = self._made[self._next[rank.number]()]
        op = make_op(name, rank.number, None, name_in_trace(rank, "0"), None, site)
        if rank.number not in ranks:
            self.scheduler.note(rank, op)
        for theirs, other in made.values():
            if theirs != ranks and max(len(theirs), len(ranks)) > 1:  # each may make its own
                lists = str(list(theirs)), str(list(ranks))
                self.scheduler.fail(mismatch.pair(other, op, "group", *lists))
        made[rank.number] = (ranks, op)

    def find_cause(self, call: Call) -> Call:
        """What a rank that waits for this call waits for in the end."""
        return call

    def advise(self, parked: list[Rank]) -> str:
        """A sentence more for the error of ranks that wait for one another, or nothing."""
        return ""

    def find_unfinished(self) -> CourseError | None:
        """The error if some ranks made a group that others never made."""
        for made in self._made.values():
            others = [rank for rank in self.scheduler.played if rank not in made]
            if others:
                _, op = made[min(made)]
                return mismatch.absent(op, others)
        return None
