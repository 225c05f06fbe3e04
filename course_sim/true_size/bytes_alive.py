"""Counts the bytes of all tensors that are alive on one rank.

    alive = BytesAlive(tell_moment)
    alive.see(tensor)     after each operator, for each tensor that it returns
    alive.note()          and then once: a step of ``alive.curve``, if the number has changed

A storage counts once, however many tensors share it, with the size that it has at the moment.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial

import torch

from course_lib.trace import Curve


class BytesAlive:
    """Counts what operators make, and what dies. ``fully_shard`` empties storages behind every
    operator's back, by their own ``resize_``: whoever does that has to call ``resized``.
    """

    def __init__(self, tell_moment: Callable[[], tuple[float, str]]) -> None:
        """``tell_moment`` says what time it is, and in which span the rank is."""
        self.now = self.peak = 0
        self.curve: Curve = []
        self._tell_moment = tell_moment
        # by the address of each storage: what tells of its end, and its bytes
        self._alive: dict[int, tuple[weakref.ref, int]] = {}

    def see(self, tensor: torch.Tensor) -> None:
        """Count a tensor's storage, if it is a new one."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self._alive:
            nbytes = storage.nbytes()
            self._alive[address] = weakref.ref(storage, partial(self._forget, address)), nbytes
            self.now += nbytes

    def resized(self, storage: torch.UntypedStorage) -> None:
        """Count a storage anew whose size has just been changed."""
        address = storage._cdata
        if address in self._alive:
            reference, before = self._alive[address]
            self._alive[address] = reference, storage.nbytes()
            self.now += storage.nbytes() - before
            self.note()

    def note(self) -> None:
        """Write down how many are alive now, if that is news."""
        if not self.curve or self.curve[-1][1] != self.now:
            at, inside = self._tell_moment()
            self.curve.append((at, self.now, inside))
            self.peak = max(self.peak, self.now)

    def _forget(self, address: int, _: weakref.ref) -> None:
        """Called by Python when a storage has died."""
        self.now -= self._alive.pop(address)[1]
