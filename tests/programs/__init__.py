"""Programs that fail, each once: its class of error, its ranks, and what has to be said of it.

``page`` has those of docs/errors.md, with all that ``run`` says of them, and ``faults`` has others.
Each of ``missing_calls`` leaves a call out; ``jobs`` are scripts. All are played under ``run``, and
most in both simulators; some under watch, in the soak.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from course_lib import Deadlock, Hang, Mismatch, run, simulate

Engine = Callable[..., Any]
# Where a program does not say how many ranks it wants, these are those of ``run``.
ENGINES: dict[str, Engine] = {
    "run": run,
    "simulate": partial(simulate, world_size=4),
    "nccl": partial(simulate, world_size=4, backend="nccl"),
}
PROCESSES, GLOO, EVERYWHERE = ("run",), ("run", "simulate"), tuple(ENGINES)


class Program(NamedTuple):
    """``play`` calls an engine with what ranks do; ``says`` are parts of what is told then."""

    name: str
    kind: type[BaseException]
    play: Callable[[Engine], object]
    ranks: tuple[int, ...] = ()
    says: tuple[str, ...] = ()
    what: str = ""  # of a Mismatch
    engines: tuple[str, ...] = PROCESSES
    in_own_words: tuple[str, ...] = ()  # engines that say it otherwise, in an error of this kind


def provoke(program: Program, engine: Engine = run) -> BaseException | None:
    try:
        program.play(engine)
    except (Exception, KeyboardInterrupt) as error:  # whatever it is, it is judged
        return error
    return None


def wrong_with(program: Program, error: BaseException | None, engine: str = "run") -> str:
    """What is wrong with what was told; "" if nothing is."""
    told = f"{type(error).__name__}: {error}"
    if type(error) is not program.kind or program.what not in ("", getattr(error, "what", "")):
        return f"{program.name}: {told}"
    if not set(program.ranks) <= set(named(error)):
        return f"{program.name}: not named: ranks {program.ranks}: {told}"
    says = () if engine in program.in_own_words else program.says
    if lacking := [part for part in says if part not in told]:
        return f"{program.name}: not said: {lacking}: {told}"
    bare = program.kind is Mismatch and ("SIGABRT" in told or "Connection" in told)
    return f"{program.name}: bare: {told}" if bare else ""


def named(error: Any) -> Sequence[int]:
    if isinstance(error, Mismatch):
        return error.ranks
    if isinstance(error, (Deadlock, Hang)):
        return [wait.rank for wait in error.waits]
    return [getattr(error, "rank", -1)]
