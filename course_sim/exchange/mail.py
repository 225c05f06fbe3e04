"""Messages between two ranks: which send meets which recv, and when each of them is done.

    sends[dst, src, tag]   deque of sends that nobody receives yet      the k-th of a key meets
    recvs[dst, src, tag]   deque of recvs that nobody sends to yet      the k-th of the same key
    anys[dst, tag]         recvs from any source: the first of them takes what is there earliest

They meet when they are called, and the bytes change hands. Each is posted at its own time: at
once, or when a rank's log (ahead.py) or a GPU's stream (streams.py) comes to it.

    rendezvous    a message sets off when both have been posted; a send announces itself at once
    buffered      it sets off when it is sent, and is there when its first byte is

    a send is done when its last byte has left
    a recv is done when the last byte is in, and not before it was posted

Nothing here knows a buffer: a message is bytes, and what has come waits until its Work takes it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from torch import Tensor

from course_lib.diagnosis import mismatch
from course_lib.errors import CourseError
from course_lib.trace import Event
from course_sim.agenda import Agenda
from course_sim.network import Fabric
from course_sim.rank import Call, Rank
from course_sim.records import Site, make_op

Key = tuple[int, int, int]


class Message(Call):
    """One side of a message."""

    __slots__ = ("data", "key", "mail", "partner")

    def __init__(self, mail: Mail, rank: Rank, op: Event, site: Site, key: Key) -> None:
        self.rank, self.record = rank, rank.record(op, site)  # in line: it is quicker
        self.number = len(rank.records)
        self.posted, self.work = False, None
        self.mail, self.key = mail, key
        self.data: bytes | None = None
        self.partner: Any = None  # the other side, once both have called

    @property
    def on(self) -> tuple[int, ...]:
        """The peer, or everybody else for a recv from any source."""
        op = self.record.op
        if op.peer is not None:
            return (op.peer,)
        return tuple(r for r in self.mail.ranks if r != self.rank.number)

    @property
    def counterparts(self) -> Sequence[Message]:
        return () if self.partner is None else (self.partner,)


class Send(Message):
    """The sender's side. It is ``ready`` at once, as a send brings its rank no values."""

    __slots__ = ("delivered", "order", "there")

    order: int  # in which the sends of all ranks take the links
    there: float  # from when on a recv from any source may take it
    delivered: float | None  # when the last byte is in, once that is known
    ready = True

    def post(self) -> None:
        """There is a message for a recv."""
        mail, agenda = self.mail, self.mail.agenda
        self.delivered, self.order = None, agenda.next_order()
        self.there = agenda.now + mail.fabric.draw_lateness(self.record.op.nbytes)
        if mail.buffered:
            self.set_off()
        self.posted, self.record.issued = True, agenda.now
        if self.partner is not None:
            if self.partner.posted:
                mail.begin(self)
        elif mail.anys:
            mail.serve(self.key[0], self.key[2])

    def set_off(self) -> None:
        """Put the message on the links."""
        mail, op = self.mail, self.record.op
        drawn = self.partner is not None and self.partner.key[1] < 0
        left, self.there = mail.fabric.send(mail.agenda, op, self.set_arrival, drawn)
        mail.agenda.set_end(self, left)

    def set_arrival(self, at: float) -> None:
        """The network knows at what time the last byte is in."""
        self.delivered = at
        if self.partner is not None and self.partner.posted:
            self.mail.agenda.set_end(self.partner, at)


class Recv(Message):
    """The receiver's side. It is ``ready`` when the bytes are there."""

    __slots__ = ()

    @property
    def ready(self) -> bool:
        return self.data is not None

    def post(self) -> None:
        """From now on there is a place for a message."""
        mail = self.mail
        self.posted, self.record.issued = True, mail.agenda.now
        if self.partner is not None and self.partner.posted:
            mail.begin(self.partner)
        if self.key[1] < 0:
            mail.serve(self.key[0], self.key[2])

    def take(self) -> bytes:
        """What has come."""
        data, self.data = self.data or b"", None
        return bytes(len(data)) if self.mail.fabric.network.zeros else data

    @property
    def source(self) -> int:
        """The group rank that it came from."""
        assert self.record.op.peer is not None
        return self.mail.ranks.index(self.record.op.peer)


class Mail:
    """The post office of one group."""

    def __init__(self, groups: Any, name: str, members: dict[int, int]) -> None:
        """``groups`` has what is one for all groups, ``members`` the ranks' numbers in this one:
        see groups.py.
        """
        self.agenda: Agenda = groups.scheduler  # see Note [Two agendas] in ahead.py
        self.fabric: Fabric = groups.fabric
        self.name, self.buffered = name, groups.buffered
        self.members, self.ranks = members, tuple(members)
        self.sends: defaultdict[Key, deque[Send]] = defaultdict(deque)
        self.recvs: defaultdict[Key, deque[Recv]] = defaultdict(deque)
        self.anys: defaultdict[tuple[int, int], deque[Recv]] = defaultdict(deque)
        self._looks: dict[tuple[int, int], float] = {}  # when serve() is called next
        self._ops: dict[Any, tuple[Event, Key]] = {}  # of all calls so far

    def send(self, rank: Rank, like: Tensor, data: bytes, dst: int, tag: int, site: Site) -> Send:
        """Send bytes to group rank ``dst``; of ``like``, only dtype and shape are looked at."""
        op, key = self._describe("send", rank, dst, like, tag, site)
        call = Send(self, rank, op, site, key)
        call.data = data
        if rank.poisoned and not site.carries:
            rank.note_sent(data)
        self.sends[key].append(call)
        self._meet(key)
        rank.scheduler.post(call)
        return call

    def recv(self, rank: Rank, like: Tensor, src: int, tag: int, site: Site) -> Recv:
        """Receive from group rank ``src``, or from anybody where it is −1."""
        op, key = self._describe("recv", rank, src, like, tag, site)
        call = Recv(self, rank, op, site, key)
        if not call.record.waited:
            rank.poisoned.append(call.record)
        if src < 0:
            rank.scheduler.read_clock()  # who comes first is a matter of time
            self.anys[key[0], tag].append(call)
        else:
            self.recvs[key].append(call)
            self._meet(key)
        rank.scheduler.post(call)
        return call

    def _describe(
        self, kind: str, rank: Rank, peer: int, like: Tensor, tag: int, site: Site
    ) -> tuple[Event, Key]:
        """The op of this call, one for all calls that are alike, and its key."""
        scheduler = rank.scheduler
        if scheduler.running is not rank or scheduler.error is not None:  # in line: it is quicker
            scheduler.check(rank)
        alike = site, rank.number, kind, peer, tag, like.dtype, like.shape
        known = self._ops.get(alike)
        if known is not None:
            return known
        me = self.members[rank.number]
        if tag < 0:
            raise RuntimeError(f"tag={tag}: a tag is a whole number, zero or more")
        if me == peer:  # torch refuses it of a send; in a batch, and of a recv, gloo does
            raise RuntimeError(
                f"rank {rank.number} cannot {kind} to or from itself: "
                "there is no such connection, copy"
            )
        op = make_op(
            kind,
            rank.number,
            None if peer < 0 else self.ranks[peer],
            self.name,
            like,
            site,
            tag=tag,
            async_op=not site.blocking,
            **{"bytes_in" if kind == "send" else "bytes_out": like.nbytes},
        )
        key = (peer, me, tag) if kind == "send" else (me, peer, tag)
        self._ops[alike] = op, key
        return op, key

    def _meet(self, key: Key) -> None:
        """Match what waits under a key, as far as no recv from any source was called before."""
        sends, recvs = self.sends[key], self.recvs[key]
        anys = self.anys.get((key[0], key[2])) if self.anys else None
        while sends and recvs and not (anys and anys[0].number < recvs[0].number):
            self._match(sends.popleft(), recvs.popleft())

    def _match(self, send: Send, recv: Recv) -> None:
        """The bytes change hands, if they fit."""
        op = recv.record.op
        if op.peer is None:
            recv.record.op = op = replace(op, peer=send.record.op.rank)
        if error := self.find_misfit(send.record.op, op):
            self.agenda.fail(error)
        send.partner = recv
        recv.partner = send
        recv.data = send.data
        send.data = None
        if send.posted and recv.posted:
            self.begin(send)

    def find_misfit(self, send: Event, recv: Event) -> CourseError | None:
        """The error if the recv does not expect what is sent; None if it does."""
        if send.nbytes == recv.nbytes and send.dtype == recv.dtype:  # in line: it is quicker
            return None
        return mismatch.between(send, recv)

    def begin(self, send: Send) -> None:
        """Both sides have been posted."""
        recv = send.partner
        recv.partner = None  # break the reference cycle, so that both are freed at once
        if not self.buffered:
            self.agenda.schedule_last(send.order, send.set_off)
        elif send.delivered is not None:
            self.agenda.set_end(recv, max(send.delivered, self.agenda.now))

    def serve(self, dst: int, tag: int) -> None:
        """Let recvs from any source take what is there, and look again when more is."""
        anys = self.anys[dst, tag]
        looks = self._looks
        now = self.agenda.now
        if looks.get((dst, tag), inf) <= now:
            del looks[dst, tag]
        while anys and (coming := self._first_sends(dst, tag)):
            first = min(coming, key=lambda send: (send.there, self.agenda.draw_tie()))
            if first.there > now:
                if first.there < looks.get((dst, tag), inf):
                    looks[dst, tag] = first.there
                    self.agenda.schedule(first.there, lambda: self.serve(dst, tag))
                return
            self.sends[first.key].popleft()
            self._match(first, anys.popleft())
            for send in self._first_sends(dst, tag):  # those that were kept for it
                self._meet(send.key)

    def _first_sends(self, dst: int, tag: int) -> list[Send]:
        """The first send from each source that nobody has received yet."""
        queues = (self.sends.get((dst, src, tag)) for src in range(len(self.ranks)))
        return [queue[0] for queue in queues if queue]
