"""Looking for the schedule that breaks a program: one seed after another, and the first is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from course_lib.errors import CourseError
from course_lib.simulated import hazards
from course_lib.simulated.engine import simulate
from course_lib.simulated.network import Network
from course_lib.trace import Run


@dataclass(frozen=True)
class Exploration:
    """What came of trying many schedules. ``seed`` is None where none broke the program."""

    tried: int
    seed: int | None = None
    error: CourseError | None = None
    differs: tuple[int, ...] = ()  # ranks whose results differ from the first schedule's
    _again: Callable[[], Run] | None = field(default=None, repr=False, compare=False)

    @property
    def broken(self) -> bool:
        return self.seed is not None

    def replay(self) -> Run:
        """Run the schedule that broke the program again: it raises the same error, if it did."""
        if self._again is None:
            raise CourseError(
                f"none of {self.tried} schedules broke the program: nothing to replay"
            )
        return self._again()

    def __str__(self) -> str:
        if self.seed is None:
            return f"{self.tried} schedules, every one with the same results"
        if self.error is not None:
            return f"schedule {self.seed} breaks it: {type(self.error).__name__}: {self.error}"
        ranks = list(self.differs)
        return f"schedule {self.seed} gives other results than schedule 1 on ranks {ranks}"


def explore(
    fn: Callable, args: tuple, world_size: int, schedules: int, *, network: Network,
    buffered: bool, limit: float,
) -> Exploration:  # fmt: skip
    if not isinstance(schedules, int) or schedules < 1:
        raise CourseError(f"schedules={schedules!r}: give a whole number, 1 or more")
    network = network if network.jitter else replace(network, jitter=1.0)

    def play(seed: int) -> Run:
        return simulate(fn, *args, world_size=world_size, network=network, buffered=buffered,
                        seed=seed, limit=limit)  # fmt: skip

    first: list[Any] | None = None
    for seed in range(1, schedules + 1):
        try:
            results = play(seed).results
        except CourseError as error:
            if type(error) is CourseError:  # bad arguments: no schedule's fault
                raise
            return Exploration(seed, seed, error, (), lambda seed=seed: play(seed))  # type: ignore[misc]
        first = results if first is None else first
        pairs = enumerate(zip(first, results, strict=True))
        differs = tuple(rank for rank, (a, b) in pairs if not hazards.equal(a, b))
        if differs:
            return Exploration(seed, seed, None, differs, lambda seed=seed: play(seed))  # type: ignore[misc]
    return Exploration(schedules)
