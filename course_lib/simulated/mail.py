"""Messages between two ranks: which send meets which recv, and when each of them is done.

    sends[dst, src, tag]   deque of sends that nobody receives yet      the k-th of a key meets
    recvs[dst, src, tag]   deque of recvs that nobody sends to yet      the k-th of the same key
    anys[dst, tag]         recvs from any source: the earliest arrival gets the first of them

    a send is done at max(the out-link is free again, a recv was posted)     buffered: the first
    a recv is done when the last byte is in, and not before it was posted

The bytes are copied when a send is issued and put into place when its recv is waited for, so that
what happens to either buffer in between shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
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

    __slots__ = (
        "buffer",
        "completed",
        "data",
        "mail",
        "me",
        "op",
        "partner",
        "peer",
        "rank",
        "seq",
    )

    data: Any  # the message: of a send what was in the buffer, of a recv what has come

    def __init__(
        self, mail: Mail, rank: Rank, op: Op, buffer: Any, me: int, peer: int, data: Any
    ) -> None:
        self.mail, self.rank, self.op, self.buffer, self.data = mail, rank, op, buffer, data
        self.me, self.peer = me, peer  # group ranks; peer −1: any source
        self.seq = rank.ops.add(op)
        self.completed: float | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return dist.Work

    @property
    def on(self) -> tuple[int, ...]:
        ranks = self.mail.ranks
        if self.peer >= 0:
            return (ranks[self.peer],)
        return tuple(r for r in ranks if r != self.rank.number)

    def event(self) -> Event:
        return self.rank.ops.event(self.seq)

    def complete(self, at: float) -> None:
        """It is known when this is over."""
        self.completed = self.rank.ops.completed[self.seq] = at
        if self.rank.waits is self:
            self.mail.scheduler.wake(self.rank, at)

    def is_completed(self) -> bool:
        """False until ``wait()``, as on gloo. Asking takes a microsecond, so that asking in a loop
        does not stop the clock.
        """
        scheduler = self.mail.scheduler
        scheduler.check()
        scheduler.sleep_until(self.rank, scheduler.read_clock() + 1e-6)
        return self.buffer is None

    def is_success(self) -> bool:
        return self.buffer is None

    def exception(self) -> None:
        return None

    def get_future(self) -> Any:
        raise RuntimeError("gloo's send and recv have no future: call wait() on the Work")


class SendWork(_Message):
    __slots__ = ("arrives", "delivered", "left", "taken")

    taken: bool  # whether its recv has the bytes
    partner: RecvWork | None  # its recv, if that waits for the last byte
    left: float  # when the out-link is free again
    arrives: float  # when the first byte reaches the in-link
    delivered: float | None  # when the last byte is in, once that is known

    def arrived(self, at: float) -> None:
        """The network knows at what time the last byte is in."""
        self.delivered = at
        if self.partner is not None:
            self.partner.finish(at)

    def finish(self, at: float) -> None:
        """A recv was posted at ``at``."""
        if self.completed is None:
            self.complete(self.left if self.left > at else at)

    def wait(self, timeout: Any = None) -> bool:
        buffer = self.buffer
        if buffer is None:
            return True
        self.mail.until_done(self)
        self.rank.ops.waited[self.seq] = True
        if self.op.async_op and not hazards.same(self.data, buffer):
            self.mail.scheduler.fail(explain.written_before_wait(self.event()))
            raise Abandoned
        self.buffer = None
        if self.taken:  # the bytes are not needed any more, though the Work may live on
            self.data = None
        return True


class RecvWork(_Message):
    __slots__ = ("number", "poison", "posted")

    posted: float
    number: int  # in order of posting
    poison: Any

    def finish(self, delivered: float) -> None:
        self.complete(delivered if delivered > self.posted else self.posted)

    def wait(self, timeout: Any = None) -> bool:
        buffer = self.buffer
        if buffer is None:
            return True
        self.mail.until_done(self)
        self.rank.ops.waited[self.seq] = True
        poison = self.poison
        if poison is not None and not poison.intact(buffer):
            self.mail.scheduler.fail(hazards.written_into(self.event()))
            raise Abandoned
        data = self.data
        if data.shape != buffer.shape:
            data = data.view(buffer.shape)
        (buffer.detach() if buffer.requires_grad else buffer).copy_(data)
        self.buffer = self.data = None
        return True

    def came_from(self, peer: int) -> None:
        """A recv from any source learns who has sent."""
        self.op = self.rank.ops.ops[self.seq] = self.op.coming_from(peer)

    def source_rank(self) -> int:
        return self.peer if self.peer >= 0 else self.mail.ranks.index(self.op.peer)

    _source_rank = source_rank


class Mail:
    """The post office of one group."""

    def __init__(
        self, scheduler: Scheduler, fabric: Fabric, name: str, ranks: Sequence[int], buffered: bool,
        poisons: hazards.Poisons,
    ) -> None:  # fmt: skip
        self.scheduler, self.fabric, self.name, self.ranks = scheduler, fabric, name, ranks
        self.buffered, self.poisons = buffered, poisons
        self.sends: dict[Key, deque[SendWork]] = {}
        self.recvs: dict[Key, deque[RecvWork]] = {}
        self.anys: dict[tuple[int, int], deque[RecvWork]] = {}
        self._number = 0
        self._alike: list[dict[Any, Op]] = [{} for _ in ranks]  # each rank's calls so far

    def send(self, rank: Rank, me: int, tensor: torch.Tensor, dst: int, tag: int) -> SendWork:
        if self.scheduler.error is not None:
            raise Abandoned
        self._check(me, dst, tensor, "send to")
        site, direct, blocking, carries = call_site(3)
        op = self._op("send", me, dst, tensor, tag, site, not blocking, direct)
        data = (tensor.detach() if tensor.requires_grad else tensor).clone()
        work = SendWork(self, rank, op, tensor, me, dst, data)
        work.partner, work.delivered, work.taken = None, None, False
        if rank.poisoned and self.poisons.left > 0 and not carries:
            rank.digests.append((len(rank.ops), hazards.digest(data)))
        self.post_send(work)
        return work

    def _op(
        self, kind: str, me: int, peer: int, tensor: torch.Tensor, tag: int, site: Any,
        async_op: bool, direct: bool,
    ) -> Op:  # fmt: skip
        """What is written down of this call: the same Op as the last time, if it is like that."""
        code, at = site or (None, 0)
        alike = self._alike[me]
        key = (kind, peer, tensor.dtype, tensor.shape, tag, id(code), at, async_op, direct)
        op = alike.get(key)
        if op is None:
            sent = tensor.nbytes if kind == "send" else 0
            op = alike[key] = Op(
                kind, self.ranks[me], None if peer < 0 else self.ranks[peer], self.name, sent,
                tensor.nbytes - sent, tensor, site, tag, None, async_op, direct,
            )  # fmt: skip
        return op

    def post_send(self, work: SendWork) -> None:
        """The message leaves now."""
        scheduler, op, dst, tag = self.scheduler, work.op, work.peer, work.op.tag
        now = work.rank.ops.issued[work.seq] = scheduler.now
        work.left, work.arrives, work.delivered = self.fabric.send(
            now, op.rank, self.ranks[dst], op.nbytes, scheduler.play, work.arrived
        )
        if self.buffered:
            work.complete(work.left)
        key = (dst, work.me, tag)
        recvs = self.recvs.get(key)
        anys = self.anys.get((dst, tag)) if self.anys else None
        if recvs and not (anys and anys[0].number < recvs[0].number):
            self._match(work, recvs.popleft(), now)
            scheduler.check()
        else:
            self.queue(self.sends, key).append(work)
            if anys:
                scheduler.play(work.arrives, lambda: self._serve(dst, tag))

    def recv(self, rank: Rank, me: int, tensor: torch.Tensor, src: int, tag: int) -> RecvWork:
        """Receive from group rank ``src``, or from anybody where it is −1."""
        if self.scheduler.error is not None:
            raise Abandoned
        self._check(me, src, tensor, "receive from")
        site, direct, blocking, _ = call_site(3)
        op = self._op("recv", me, src, tensor, tag, site, not blocking, direct)
        work = RecvWork(self, rank, op, tensor, me, src, None)
        work.poison = self.poisons.put(rank, tensor) if direct and not blocking else None
        self.post_recv(work)
        return work

    def post_recv(self, work: RecvWork) -> None:
        """From now on there is a place for the message."""
        scheduler, me, src, tag = self.scheduler, work.me, work.peer, work.op.tag
        work.rank.ops.issued[work.seq] = work.posted = now = scheduler.now
        self._number = work.number = self._number + 1
        if src < 0:
            self.queue(self.anys, (me, tag)).append(work)
            coming = self._coming(me, tag)
            if coming:
                at = min(send.arrives for send in coming)
                scheduler.play(at if at > now else now, lambda: self._serve(me, tag))
            return
        key = (me, src, tag)
        sends = self.sends.get(key)
        if sends:
            self._match(sends.popleft(), work, now)
            scheduler.check()
        else:
            self.queue(self.recvs, key).append(work)

    def until_done(self, work: _Message) -> None:
        """The rank waits for its send or recv."""
        scheduler, done = self.scheduler, work.completed
        if scheduler.error is not None:
            raise Abandoned
        if done is None:
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
        recv.data, send.taken = send.data, True
        if send.buffer is None:  # nobody will compare them any more
            send.data = None

    def _match(self, send: SendWork, recv: RecvWork, now: float) -> None:
        self.pass_on(send, recv)
        if not send.taken:
            return
        if recv.peer < 0:
            recv.posted = max(recv.posted, now)
        send.finish(now)
        if send.delivered is not None:
            recv.finish(send.delivered)
        else:
            send.partner = recv

    def _serve(self, dst: int, tag: int) -> None:
        """A message has arrived that a recv from any source may take."""
        anys, now = self.anys[dst, tag], self.scheduler.now
        while anys:
            there = [send for send in self._coming(dst, tag) if send.arrives <= now]
            if not there:
                return
            first = min(there, key=lambda send: (send.arrives, self.scheduler.tie()))
            self.sends[dst, first.me, tag].popleft()
            self._match(first, anys.popleft(), now)

    def _coming(self, dst: int, tag: int) -> list[SendWork]:
        queues = (self.sends.get((dst, src, tag)) for src in range(len(self.ranks)))
        return [queue[0] for queue in queues if queue]

    @staticmethod
    def queue(queues: dict, key: Any) -> deque:
        queue = queues.get(key)
        if queue is None:
            queue = queues[key] = deque()
        return queue

    def _check(self, me: int, peer: int, tensor: torch.Tensor, does: str) -> None:
        if me == peer:
            raise RuntimeError(
                f"rank {self.ranks[me]} cannot {does} itself: gloo has no such connection, copy"
            )
        if not tensor.is_contiguous():
            raise RuntimeError("input tensor has to be contiguous: communicate x.contiguous()")
        if not tensor.is_cpu:
            raise RuntimeError(
                f"simulated ranks have no {tensor.device.type}: use course_lib.device(), "
                "which is the CPU here"
            )
