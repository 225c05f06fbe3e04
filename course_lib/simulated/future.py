"""The future of a collective: who waits for it waits in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


class Future(torch.futures.Future):
    """Of a Work of ours. What ``then`` makes is settled with it."""

    def __init__(self, work: dist.Work, first: Future | None = None) -> None:
        super().__init__()
        self._work, self._first = work, first or self

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

    def then(self, callback: Callable[[Any], Any]) -> Future:
        child = Future(self._work, self._first)

        def settle(parent: Any) -> None:
            try:
                child.set_result(callback(parent))
            except Exception as error:
                child.set_exception(error)

        self.add_done_callback(settle)
        return child
