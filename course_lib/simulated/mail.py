"""Messages between two ranks: which send meets which recv, and when each of them is done.

    sends[dst, src, tag]   deque of sends that nobody receives yet      the k-th of a key meets
    recvs[dst, src, tag]   deque of recvs that nobody sends to yet      the k-th of the same key
    anys[dst, tag]         recvs from any source: the first of them takes what is there earliest

    rendezvous    a message sets off when both have been posted; a send announces itself at once
    buffered      it sets off when it is sent, and is there when its first byte is

    a send is done when its last byte has left
    a recv is done when the last byte is in, and not before it was posted

What is in the buffer is copied when a send is issued and put into place when its recv is waited
for, so that what happens to either buffer in between shows.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Sequence
from math import inf
from typing import Any

import torch
import torch.distributed as dist

from course_lib import explain
from course_lib.simulated import hazards
from course_lib.simulated.network import Fabric
from course_lib.simulated.ops import Op, call_site
from course_lib.simulated.scheduler import Abandoned, Rank, Scheduler
from course_lib.trace import Event

Key = tuple[int, int, int]


class _Message:
    """What send and recv have in common: the Work that the reader's code holds.

    It only says that it is a Work: torch's own, which C++ keeps a register of, would take as long
    to make as all the rest of a message, and nobody in C++ ever waits for a send or a recv.
    """

    __slots__ = ("buffer", "data", "key", "mail", "op", "rank", "seq")

    def __init__(
        self, mail: Mail, rank: Rank, op: Op, key: Key, buffer: Any, data: bytes | None
    ) -> None:
        self.mail, self.rank, self.op, self.key = mail, rank, op, key
        self.buffer = buffer  # None once it has been waited for
        self.data = data  # the message: of a send what was in the buffer, of a recv what has come
        self.seq = rank.ops.add(op)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return dist.Work

    @property
    def on(self) -> tuple[int, ...]:
        if self.op.peer is not None:
            return (self.op.peer,)
        return tuple(r for r in self.mail.ranks if r != self.rank.number)

    def event(self) -> Event:
        return self.rank.ops.event(self.seq)

    def complete(self, at: float) -> None:
        """It is known when this is over."""
        self.rank.ops.completed[self.seq] = at
        if self.rank.waits is self:
            self.mail.scheduler.wake(self.rank, at)

    def is_completed(self) -> bool:
        """False until ``wait()``, as on gloo. Asking takes a microsecond, so that asking in a loop
        does not stop the clock.
        """
        scheduler = self.mail.scheduler
        scheduler.check(self.rank)
        scheduler.sleep_until(self.rank, scheduler.read_clock() + 1e-6)
        return self.buffer is None

    def is_success(self) -> bool:
        return self.buffer is None

    def exception(self) -> None:
        return None

    def get_future(self) -> Any:
        raise RuntimeError("gloo's send and recv have no future: call wait() on the Work")


class SendWork(_Message):
    __slots__ = ("delivered", "order", "partner", "there")

    order: int  # of the sends of all ranks, in which they take the links
    partner: RecvWork | None  # its recv, once there is one
    there: float  # from when on a recv from any source may take it
    delivered: float | None  # when the last byte is in, once that is known

    def set_off(self) -> None:
        mail, op = self.mail, self.op
        assert op.peer is not None
        left, self.there = mail.fabric.send(
            mail.scheduler.now, op.rank, op.peer, op.nbytes, mail.scheduler.play, self.arrived,
            announced_late=self.partner is not None and self.partner.key[1] < 0,
        )  # fmt: skip
        self.complete(left)

    def arrived(self, at: float) -> None:
        """The network knows at what time the last byte is in."""
        self.delivered = at
        if self.partner is not None:
            self.partner.complete(at)

    def wait(self, timeout: Any = None) -> bool:
        buffer = self.buffer
        if buffer is None:
            return True
        if timeout:
            self.mail.scheduler.be_patient(self.rank, self.seq, self, timeout)
        self.mail.until_done(self)
        calls = self.rank.ops
        calls.waited[self.seq] = True
        if self.op.async_op and hazards.raw(buffer) != self.data:
            self.mail.scheduler.fail(explain.written_before_wait(self.event()))
            raise Abandoned
        self.buffer = None
        if calls.mates[self.seq] >= 0:  # its recv has the bytes, and this Work may live on
            self.data = None
        return True


class RecvWork(_Message):
    __slots__ = ("order", "poison")

    order: int  # of the recvs, as they were posted
    poison: Any

    def wait(self, timeout: Any = None) -> bool:
        buffer = self.buffer
        if buffer is None:
            return True
        if timeout:
            self.mail.scheduler.be_patient(self.rank, self.seq, self, timeout)
        self.mail.until_done(self)
        self.rank.ops.waited[self.seq] = True
        filled, place = self.mail.filled, (self.rank.number, buffer.data_ptr())
        if self.poison is not None and not self.poison.intact(buffer):
            twice = filled.get(place, 0) > self.seq
            self.mail.scheduler.fail(hazards.written_into(self.event(), twice))
            raise Abandoned
        data = self.data or b""
        hazards.fill(buffer, bytes(len(data)) if self.mail.fabric.network.zeros else data)
        filled[place] = len(self.rank.ops)
        self.buffer = self.data = None
        return True

    def came_from(self, peer: int) -> None:
        """A recv from any source learns who has sent."""
        self.op = self.rank.ops.ops[self.seq] = self.op.coming_from(peer)

    def source_rank(self) -> int:
        return self.mail.ranks.index(self.op.peer)

    _source_rank = source_rank


class Mail:
    """The post office of one group."""

    def __init__(
        self, scheduler: Scheduler, fabric: Fabric, name: str, ranks: Sequence[int], buffered: bool,
        poisons: hazards.Poisons,
    ) -> None:  # fmt: skip
        self.scheduler, self.fabric, self.name, self.ranks = scheduler, fabric, name, ranks
        self.buffered, self.poisons = buffered, poisons
        self.sends: defaultdict[Key, deque[SendWork]] = defaultdict(deque)
        self.recvs: defaultdict[Key, deque[RecvWork]] = defaultdict(deque)
        self.anys: defaultdict[tuple[int, int], deque[RecvWork]] = defaultdict(deque)
        self._looks: dict[tuple[int, int], float] = {}  # when _serve is called next
        # By rank and place in memory: how many calls the rank had made when a message came there.
        self.filled: dict[tuple[int, int], int] = {}
        self._alike: list[dict[Any, Op]] = [{} for _ in ranks]  # each rank's calls so far

    def send(self, rank: Rank, me: int, tensor: torch.Tensor, dst: int, tag: int) -> SendWork:
        op, carries = self._op("send", rank, me, dst, tensor, tag)
        data = hazards.raw(tensor)
        work = SendWork(self, rank, op, (dst, me, tag), tensor, data)
        if rank.poisoned and self.poisons.left > 0 and not carries:
            rank.digests.append((len(rank.ops), hazards.digest(data)))
        self.post_send(work)
        return work

    def recv(self, rank: Rank, me: int, tensor: torch.Tensor, src: int, tag: int) -> RecvWork:
        """Receive from group rank ``src``, or from anybody where it is −1."""
        op, _ = self._op("recv", rank, me, src, tensor, tag)
        work = RecvWork(self, rank, op, (me, src, tag), tensor, None)
        work.poison = None if op.unwatched else self.poisons.put(rank, tensor)
        self.post_recv(work)
        return work

    def _op(
        self, kind: str, rank: Rank, me: int, peer: int, tensor: torch.Tensor, tag: int
    ) -> tuple[Op, bool]:
        """What is written down of this call: the same Op as the last time, if it is like that; and
        whether it carries an object. Most are isend or irecv, called by the reader's own line: for
        those nobody has to look whose line it is.
        """
        scheduler = self.scheduler
        if scheduler.running is not rank or scheduler.error is not None:  # in line: it is quicker
            scheduler.check(rank)
        if not (tensor.is_cpu and tensor.is_contiguous()):
            _refuse(tensor)
        frame, alike = sys._getframe(3), self._alike[me]
        caller = frame.f_back or frame
        like = peer, tag, tensor.dtype, tensor.shape
        quick = id(frame.f_code), id(caller.f_code), caller.f_lasti, *like
        op = alike.get(quick)
        if op is not None:
            return op, False
        site, direct, blocking, carries = call_site(4)
        code, at = site or (None, 0)
        key = kind, id(code), at, direct, blocking, *like
        op = alike.get(key)
        if op is None:
            if tag < 0:
                raise RuntimeError(f"tag={tag}: a tag is a whole number, zero or more")
            if me == peer:
                raise RuntimeError(
                    f"rank {self.ranks[me]} cannot {kind} to or from itself: "
                    "gloo has no such connection, copy"
                )
            sent = tensor.nbytes if kind == "send" else 0
            op = alike[key] = Op(
                kind, self.ranks[me], None if peer < 0 else self.ranks[peer], self.name, sent,
                tensor.nbytes - sent, tensor, site, tag, None, not blocking, direct,
            )  # fmt: skip
        if code is caller.f_code and at == caller.f_lasti and not op.unwatched:
            alike[quick] = op
        return op, carries

    def post_send(self, work: SendWork) -> None:
        """There is a message for a recv."""
        scheduler, key = self.scheduler, work.key
        dst, _, tag = key
        now = work.rank.ops.issued[work.seq] = scheduler.now
        work.partner, work.delivered, work.order = None, None, scheduler.next_order()
        work.there = now + self.fabric.late(work.op.nbytes)
        if self.buffered:
            work.set_off()
        recvs = self.recvs.get(key)
        anys = self.anys.get((dst, tag)) if self.anys else None
        if recvs and not (anys and anys[0].order < recvs[0].order):
            self._match(work, recvs.popleft(), now)
        else:
            self.sends[key].append(work)
            if anys:
                self._serve(dst, tag)
        scheduler.check(work.rank)

    def post_recv(self, work: RecvWork) -> None:
        """From now on there is a place for a message."""
        scheduler, key = self.scheduler, work.key
        me, src, tag = key
        now = work.rank.ops.issued[work.seq] = scheduler.now
        work.order = scheduler.next_order()
        if src < 0:
            self.anys[me, tag].append(work)
            self._serve(me, tag)
        elif (sends := self.sends.get(key)) and not (self.anys and self.anys.get((me, tag))):
            self._match(sends.popleft(), work, now)
        else:
            self.recvs[key].append(work)
        scheduler.check(work.rank)

    def until_done(self, work: _Message) -> None:
        """The rank waits for its send or recv."""
        scheduler, done = self.scheduler, work.rank.ops.completed[work.seq]
        if scheduler.running is not work.rank or scheduler.error is not None:
            scheduler.check(work.rank)
        if done != done:  # nobody knows yet
            scheduler.park(work.rank, work)
        else:
            scheduler.sleep_until(work.rank, done)

    def pass_on(self, send: SendWork, recv: RecvWork) -> None:
        """A send and a recv meet, and the bytes change hands; raises if they do not fit."""
        a, b = send.op, recv.op
        if b.peer is None:
            recv.came_from(a.rank)
        if a.nbytes != b.nbytes or a.dtype != b.dtype:
            error = explain.mismatch(send.event(), recv.event())
            assert error is not None
            self.scheduler.fail(error)
            return
        recv.data = send.data
        send.rank.ops.mates[send.seq], recv.rank.ops.mates[recv.seq] = recv.seq, send.seq
        if send.buffer is None:  # nobody will compare them any more
            send.data = None

    def _match(self, send: SendWork, recv: RecvWork, now: float) -> None:
        self.pass_on(send, recv)
        if recv.data is None:
            return
        send.partner = recv
        if not self.buffered:
            self.scheduler.play_last(send.order, send.set_off)
        elif send.delivered is not None:
            recv.complete(send.delivered if send.delivered > now else now)

    def _serve(self, dst: int, tag: int) -> None:
        """Let recvs from any source take what is there, and look again when more is."""
        anys, looks, now = self.anys[dst, tag], self._looks, self.scheduler.now
        if looks.get((dst, tag), inf) <= now:
            del looks[dst, tag]
        while anys and (coming := self._coming(dst, tag)):
            first = min(coming, key=lambda send: (send.there, self.scheduler.tie()))
            if first.there > now:
                if first.there < looks.get((dst, tag), inf):
                    looks[dst, tag] = first.there
                    self.scheduler.play(first.there, lambda: self._serve(dst, tag))
                return
            self.sends[first.key].popleft()
            self._match(first, anys.popleft(), now)
            for send in self._coming(dst, tag):  # those that were kept for it
                self._meet(send.key, now)

    def _meet(self, key: Key, now: float) -> None:
        """Match what waits under a key, as far as no recv from any source was posted before."""
        sends, recvs, anys = self.sends[key], self.recvs[key], self.anys[key[0], key[2]]
        while sends and recvs and not (anys and anys[0].order < recvs[0].order):
            self._match(sends.popleft(), recvs.popleft(), now)

    def _coming(self, dst: int, tag: int) -> list[SendWork]:
        queues = (self.sends.get((dst, src, tag)) for src in range(len(self.ranks)))
        return [queue[0] for queue in queues if queue]


def _refuse(tensor: torch.Tensor) -> None:
    if not tensor.is_contiguous():
        raise RuntimeError("input tensor has to be contiguous: communicate one that is")
    raise RuntimeError(
        f"simulated ranks have no {tensor.device.type}: use course_lib.device(), "
        "which is the CPU here"
    )
