"""The future of a collective, which is waited for in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


class Future(torch.futures.Future):
    """The future of a Work of ours. What ``then`` makes is settled with it, by Python alone: a
    callback may let time pass, and C++ would swallow what ends the simulation.
    """

    def __init__(self, work: dist.Work, first: Future | None = None) -> None:
        super().__init__()
        self._work, self._first = work, first or self
        self._then: list[tuple[Future, Callable[[Any], Any]]] = []

    def wait(self) -> Any:
        self._work.wait()
        if not super(Future, self._first).done():
            self._first.set_result(self._work.result())
        return super().wait()

    value = wait

    def done(self) -> bool:
        if not super().done() and self._work.is_completed():
            self._first.wait()
        return super().done()

    def set_result(self, result: Any) -> None:
        super().set_result(result)
        while self._then:
            self._call(*self._then.pop(0))

    def then(self, callback: Callable[[Any], Any]) -> Future:
        child = Future(self._work, self._first)
        if super().done():
            self._call(child, callback)
        else:
            self._then.append((child, callback))
        return child

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.then(callback)

    def _call(self, child: Future, callback: Callable[[Any], Any]) -> None:
        try:
            result = callback(self)
        except Exception as error:
            child.set_exception(error)
        else:
            child.set_result(result)
