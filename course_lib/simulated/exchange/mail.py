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

What is in the buffer is copied when a send is issued and put into place when its recv is waited
for, so that what happens to either buffer in between shows.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import torch
import torch.distributed as dist

from course_lib.diagnosis import explain
from course_lib.errors import CourseError, Hazard
from course_lib.simulated import memory
from course_lib.simulated.ends.poison import Filled, Poisons
from course_lib.simulated.exchange.combine import refuse_memory
from course_lib.simulated.isolation import compat
from course_lib.simulated.network import Fabric
from course_lib.simulated.rank import Rank
from course_lib.simulated.records import Record, Site, op_of
from course_lib.simulated.scheduler import Scheduler
from course_lib.trace import Event

Key = tuple[int, int, int]


class _Message:
    """What send and recv have in common: the Work that the user's code holds.

    It only says that it is a Work: torch's own, which C++ keeps a register of, would take as long
    to make as all the rest of a message, and nobody in C++ ever waits for a send or a recv.
    """

    __slots__ = (
        "_buffer",
        "_data",
        "_key",
        "_mail",
        "_number",
        "_partner",
        "_posted",
        "_rank",
        "_record",
    )

    def __init__(
        self,
        mail: Mail,
        rank: Rank,
        op: Event,
        site: Site,
        key: Key,
        buffer: Any,
        data: bytes | None,
    ) -> None:
        self._mail, self._rank, self._key = mail, rank, key
        self._buffer = buffer  # None once it has been waited for
        self._data = data  # the message: of a send what was in the buffer, of a recv what has come
        self._record = rank.record(op, site)
        self._number = len(rank.records)  # of calls of the rank, this one included
        self._partner: Any = None  # the other side, once both have called
        self._posted = False

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return dist.Work

    # to be read by all: like torch's own, a Work takes no attributes

    @property
    def rank(self) -> Rank:
        return self._rank

    @property
    def record(self) -> Record:
        return self._record

    @property
    def posted(self) -> bool:
        return self._posted

    @property
    def on(self) -> tuple[int, ...]:
        op = self._record.op
        if op.peer is not None:
            return (op.peer,)
        return tuple(r for r in self._mail.ranks if r != self._rank.number)

    @property
    def memory(self) -> Sequence[torch.Tensor]:
        return () if self._buffer is None else (self._buffer,)

    @property
    def ready(self) -> bool:
        return self._data is not None

    @property
    def met(self) -> Sequence[_Message]:
        return () if self._partner is None else (self._partner,)

    def post(self) -> None:
        self._posted, self._record.issued = True, self._mail.scheduler.now
        if self._partner is not None and self._partner._posted:
            self._mail.begin(self if isinstance(self, SendWork) else self._partner)

    def wait(self, timeout: Any = None) -> bool:
        if self._buffer is None and self._record.waited:
            return True
        if compat.function_modes():
            return compat.outside_of_modes(self.wait, timeout)
        self._mail.scheduler.wait_for(self, timeout)
        self._record.waited = True
        self.deliver()
        return True

    def deliver(self) -> None:
        """The rank's buffer is its own again; it is what it has to be."""
        raise NotImplementedError

    def is_completed(self) -> bool:
        """False until ``wait()``, as on gloo."""
        self._mail.scheduler.poll(self)
        return self._buffer is None

    def is_success(self) -> bool:
        return self._buffer is None

    def exception(self) -> None:
        return None

    def get_future(self) -> Any:
        raise RuntimeError("gloo's send and recv have no future: call wait() on the Work")


class SendWork(_Message):
    __slots__ = ("delivered", "order", "there")

    order: int  # of the sends of all ranks, in which they take the links
    there: float  # from when on a recv from any source may take it
    delivered: float | None  # when the last byte is in, once that is known

    def post(self) -> None:
        """There is a message for a recv."""
        mail, scheduler = self._mail, self._mail.scheduler
        self.delivered, self.order = None, scheduler.next_order()
        self.there = scheduler.now + mail.fabric.late(self._record.op.nbytes)
        if mail.buffered:
            self.set_off()
        super().post()
        if self._partner is None and mail.anys:
            mail.serve(self._key[0], self._key[2])

    def set_off(self) -> None:
        mail, op = self._mail, self._record.op
        assert op.peer is not None
        left, self.there = mail.fabric.send(
            mail.scheduler.now,
            op.rank,
            op.peer,
            op.nbytes,
            mail.scheduler.at,
            self.arrived,
            already_late=self._partner is not None and self._partner._key[1] < 0,
        )
        mail.scheduler.over(self, left)

    def arrived(self, at: float) -> None:
        """The network knows at what time the last byte is in."""
        self.delivered = at
        if self._partner is not None and self._partner._posted:
            self._mail.scheduler.over(self._partner, at)

    def deliver(self) -> None:
        """From now on the buffer is the rank's again; until now nobody may have written to it."""
        buffer, mail = self._buffer, self._mail
        if buffer is None:
            return
        if self._record.op.async_op and memory.raw(buffer) != self._data:
            filled = mail.poisons.filled.get((self._rank.number, buffer.data_ptr()))
            mail.scheduler.fail(self._who_wrote(filled))
        self._buffer = None
        if self._partner is not None:  # its recv has the bytes, and this Work may live on
            self._data = None

    def _who_wrote(self, filled: Filled | None) -> Hazard:
        """What was last put there: it may have come after it was to be sent, or into a buffer that
        was being sent."""
        op = self._record.op
        writer, called, came = filled or (op, 0, 0)
        if came < self._number:
            return explain.written_before_wait(op)
        if called < self._number:
            return explain.read_before_wait(writer)
        return explain.received_into(op, writer)


class RecvWork(_Message):
    __slots__ = ("poison",)

    poison: Any

    def post(self) -> None:
        """From now on there is a place for a message."""
        super().post()
        if self._key[1] < 0:
            self._mail.serve(self._key[0], self._key[2])

    def deliver(self) -> None:
        """Put into place what has come."""
        buffer, mail = self._buffer, self._mail
        if buffer is None:
            return
        filled, place = mail.poisons.filled, (self._rank.number, buffer.data_ptr())
        if self.poison is not None and not self.poison.intact(buffer):
            came = filled.get(place, (None, 0, 0))[2]
            mail.scheduler.fail(explain.written_into(self._record.op, came >= self._number))
        data = self._data or b""
        memory.fill(buffer, bytes(len(data)) if mail.fabric.network.zeros else data)
        filled[place] = self._record.op, self._number, len(self._rank.records)
        self._buffer = self._data = self.poison = None

    def source_rank(self) -> int:
        return self._mail.ranks.index(self._record.op.peer)

    _source_rank = source_rank


class Mail:
    """The post office of one group."""

    def __init__(
        self,
        scheduler: Scheduler,
        fabric: Fabric,
        name: str,
        ranks: Sequence[int],
        buffered: bool,
        poisons: Poisons,
    ) -> None:
        self.scheduler, self.fabric, self.name, self.ranks = scheduler, fabric, name, ranks
        self.buffered, self.poisons = buffered, poisons
        self.sends: defaultdict[Key, deque[SendWork]] = defaultdict(deque)
        self.recvs: defaultdict[Key, deque[RecvWork]] = defaultdict(deque)
        self.anys: defaultdict[tuple[int, int], deque[RecvWork]] = defaultdict(deque)
        self._looks: dict[tuple[int, int], float] = {}  # when serve() is called next
        self._ops: dict[Any, tuple[Event, Key]] = {}  # of all calls so far

    def send(
        self, rank: Rank, me: int, tensor: torch.Tensor, dst: int, tag: int, site: Site
    ) -> SendWork:
        op, key = self._op("send", rank, me, dst, tensor, tag, site)
        data = memory.raw(tensor)
        work = SendWork(self, rank, op, site, key, tensor, data)
        if rank.poisoned and self.poisons.left > 0 and not site.carries:
            rank.digests.append((len(rank.records), hash(data)))
        self.sends[key].append(work)
        self._meet(key)
        self.scheduler.post(work)
        return work

    def recv(
        self, rank: Rank, me: int, tensor: torch.Tensor, src: int, tag: int, site: Site
    ) -> RecvWork:
        """Receive from group rank ``src``, or from anybody where it is −1."""
        op, key = self._op("recv", rank, me, src, tensor, tag, site)
        work = RecvWork(self, rank, op, site, key, tensor, None)
        work.poison = None if work.record.waited else self.poisons.put(rank, tensor)
        if src < 0:
            self.scheduler.read_clock()  # who comes first is a matter of time
            self.anys[me, tag].append(work)
        else:
            self.recvs[key].append(work)
            self._meet(key)
        self.scheduler.post(work)
        return work

    def _op(
        self, kind: str, rank: Rank, me: int, peer: int, tensor: torch.Tensor, tag: int, site: Site
    ) -> tuple[Event, Key]:
        """What is written down of this call, one for all that are alike; and its key."""
        scheduler = self.scheduler
        if scheduler.running is not rank or scheduler.error is not None:  # in line: it is quicker
            scheduler.check(rank)
        try:
            plain = tensor.is_cpu and tensor.is_contiguous()
            like = site, me, kind, peer, tag, tensor.dtype, tensor.shape
        except RuntimeError:  # a nested tensor has no shape
            refuse_memory("gloo", kind, [tensor])
            raise
        if not plain:
            refuse_memory("gloo", kind, [tensor])
            raise RuntimeError("input tensor has to be contiguous: communicate one that is")
        known = self._ops.get(like)
        if known is None:
            refuse_memory("gloo", kind, [tensor])
            if tag < 0:
                raise RuntimeError(f"tag={tag}: a tag is a whole number, zero or more")
            if me == peer:  # torch refuses it of a send; in a batch, and of a recv, gloo does
                raise RuntimeError(
                    f"rank {self.ranks[me]} cannot {kind} to or from itself: "
                    "there is no such connection, copy"
                )
            sent = tensor.nbytes if kind == "send" else 0
            op = op_of(
                kind,
                self.ranks[me],
                None if peer < 0 else self.ranks[peer],
                self.name,
                sent,
                tensor.nbytes - sent,
                tensor,
                site,
                tag,
                None,
                not site.blocking,
            )
            key = (peer, me, tag) if kind == "send" else (me, peer, tag)
            known = self._ops[like] = op, key
        return known

    def _meet(self, key: Key) -> None:
        """Match what waits under a key, as far as no recv from any source was called before."""
        sends, recvs = self.sends[key], self.recvs[key]
        anys = self.anys.get((key[0], key[2])) if self.anys else None
        while sends and recvs and not (anys and anys[0]._number < recvs[0]._number):
            self._match(sends.popleft(), recvs.popleft())

    def _match(self, send: SendWork, recv: RecvWork) -> None:
        """The bytes change hands, if they fit."""
        op = recv._record.op
        if op.peer is None:
            recv._record.op = op = replace(op, peer=send._record.op.rank)
        if error := self.misfit(send._record.op, op):
            self.scheduler.fail(error)
        send._partner, recv._partner, recv._data = recv, send, send._data
        if send._buffer is None:  # nobody will compare them any more
            send._data = None
        if send._posted and recv._posted:
            self.begin(send)

    def misfit(self, send: Event, recv: Event) -> CourseError | None:
        """The error if the one is not what the other expects."""
        if send.nbytes == recv.nbytes and send.dtype == recv.dtype:  # in line: it is quicker
            return None
        return explain.mismatch(send, recv)

    def begin(self, send: SendWork) -> None:
        """Both sides have been posted."""
        recv = send._partner
        recv._partner = None  # two that know each other would live until they are searched for
        if not self.buffered:
            self.scheduler.at_last(send.order, send.set_off)
        elif send.delivered is not None:
            self.scheduler.over(recv, max(send.delivered, self.scheduler.now))

    def serve(self, dst: int, tag: int) -> None:
        """Let recvs from any source take what is there, and look again when more is."""
        anys, looks, now = self.anys[dst, tag], self._looks, self.scheduler.now
        if looks.get((dst, tag), inf) <= now:
            del looks[dst, tag]
        while anys and (coming := self._coming(dst, tag)):
            first = min(coming, key=lambda send: (send.there, self.scheduler.tie()))
            if first.there > now:
                if first.there < looks.get((dst, tag), inf):
                    looks[dst, tag] = first.there
                    self.scheduler.at(first.there, lambda: self.serve(dst, tag))
                return
            self.sends[first._key].popleft()
            self._match(first, anys.popleft())
            for send in self._coming(dst, tag):  # those that were kept for it
                self._meet(send._key)

    def _coming(self, dst: int, tag: int) -> list[SendWork]:
        queues = (self.sends.get((dst, src, tag)) for src in range(len(self.ranks)))
        return [queue[0] for queue in queues if queue]
