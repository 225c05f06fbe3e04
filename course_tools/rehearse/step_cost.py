"""What one step of a script costs on GPUs at their true size: seconds, kernels, memory, waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from course_lib.context import current
from course_lib.diagnosis.lines import call_text
from course_lib.trace import Event
from course_tools.watch.script import run_as_main

_GIB = 2**30
# Of each step, when the GPU will have made it, and GiB of what the optimizer and its model keep.
Steps = list[tuple[float, dict[str, float]]]


class _Enough(SystemExit):
    """As many steps were made as are wanted: the script ends here."""


def run_steps(words: Sequence[str], is_module: bool, most: int) -> Steps:
    """Run a script in a rank until an optimizer has made ``most`` steps. If there are several
    optimizers, those of the one that makes the first step count. Afterwards the rank's table of
    kernels has the last step alone.
    """
    rank: Any = current()
    gpu = rank.gpu
    steps: Steps = []
    counted: list[Optimizer] = []

    def note(optimizer: Optimizer, *_: Any) -> None:  # of all ranks, as torch has one list of hooks
        if current() is rank and optimizer in (counted or [optimizer]):
            counted[:] = [optimizer]
            steps.append((gpu.next_start(), _measure_kept(optimizer)))
            if len(steps) == most:
                raise _Enough
            gpu.costs.clear()

    hook = register_optimizer_step_post_hook(note)
    with suppress(_Enough):
        try:
            run_as_main(words, is_module)
        finally:
            hook.remove()
    return steps


def _measure_kept(optimizer: Optimizer) -> dict[str, float]:
    """GiB of what lives longer than a step, by what it is."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    states = [s for state in optimizer.state.values() for s in state.values()]
    kept = {"parameters": parameters, "gradients": [p.grad for p in parameters], "states": states}
    return {name: sum(map(_count_bytes, tensors)) / _GIB for name, tensors in kept.items()}


def _count_bytes(value: Any) -> int:
    local = getattr(value, "_local_tensor", value)  # of a DTensor
    return local.numel() * local.element_size() if isinstance(local, torch.Tensor) else 0


def describe_step(run: Any, most: int, tokens: int | None) -> str:
    """What the last step of a run of ``run_steps`` took on the first rank, in lines."""
    steps: Steps = run.results[0]
    if len(steps) < most:
        return (
            f"Its optimizers made {len(steps)} steps. For what one costs, say --steps with fewer."
        )
    start, (end, kept) = steps[-2][0] if most > 1 else 0.0, steps[-1]
    seconds, waits = end - start, find_waits(run, start, end)
    rest = run.memory.by_rank[0] / _GIB - sum(kept.values())
    rate = f", {tokens / seconds:,.0f} tokens/s and GPU" if tokens else ""
    return "\n".join(
        [
            f"Step {most} takes {seconds * 1e3:,.2f} ms{rate}. On rank 0:\n{run.kernels[0]}",
            f"The GPU stands still for {sum(waits.values()) * 1e3:,.2f} ms of it:",
            *(f"  {wait * 1e3:,.2f} ms for {what}" for what, wait in waits.most_common(8)),
            *(f"{name:<11}{size:9.2f} GiB at the end of the step" for name, size in kept.items()),
            f"other     {rest:10.2f} GiB or more at the peak, as activations\n{run.memory}",
        ]
    )


def find_waits(run: Any, start: float, end: float) -> Counter[str]:
    """Seconds in which no kernel ran on rank 0, by the call whose end ended the wait."""
    events = [event for event in run.trace.of(0) if event.completed is not None]
    spans = [s for s in run.trace.spans if (s.rank, s.name) == (0, "compute") and s.end > start]
    waits: Counter[str] = Counter()
    for span in spans:
        if span.start - start > 1e-9 and span.start < end:
            ended = [e for e in events if start < e.completed <= span.start + 1e-9]
            last = max(ended, key=lambda e: e.completed, default=None)
            waits[_name_wait(last)] += span.start - start
        start = max(start, span.end)
    return waits


def _name_wait(event: Event | None) -> str:
    return f"{call_text(event)}   {event.line or ''}".rstrip() if event else "the host"
