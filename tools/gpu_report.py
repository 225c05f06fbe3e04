"""What only a machine with GPUs can show: the exercises on NCCL, bandwidth, scaling, overlap, AMP,
how far the modelled GPU of lesson 07 is from this one, and a run at its true size.

    make gpu                                 writes build/gpu/report.md and report.json
    python tools/gpu_report.py --rehearse    the same code on CPUs and gloo, to see that it runs

The report says how many GPUs there were, what passed, what failed and why, and what was not tried.
With several GPUs there is a rank for each. On one GPU there is one rank; where NCCL is 2.30 or
newer, two ranks share it (NCCL_MULTI_RANK_GPU_ENABLE=1, which NCCL calls experimental).

Exit code: 0 nothing failed, 1 something failed, 3 there is no GPU to look at.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "course_tools" / "jobs")]

from course_check.exercise import Exercise  # noqa: E402
from course_check.harness.answer import Answer, call_all  # noqa: E402
from course_check.harness.kept import Kept, Unpacked  # noqa: E402
from course_check.judge import judge  # noqa: E402
from course_check.play import make_play, note_result  # noqa: E402
from course_exercises.catalogue import find  # noqa: E402
from course_lib import GPU, Network, compute, device, load_digits, run, simulate  # noqa: E402
from course_lib.context import current  # noqa: E402
from course_lib.errors import CourseError  # noqa: E402
from course_lib.trace import Run, Trace  # noqa: E402
from course_staff.authoring.source import read_lesson  # noqa: E402

LESSONS = ("01", "02", "04", "05", "06", "07", "08", "09", "10")
NO_GPU = 3
SHARING_SINCE = (2, 30)  # the NCCL that lets ranks share a GPU


@dataclass
class Item:
    """One line of the report. ``outcome`` is "passed", "failed" or "not tried"."""

    name: str
    outcome: str
    what: str = ""


@dataclass(frozen=True)
class Machine:
    """What there is to run on. ``gpus`` is 0 in a rehearsal."""

    gpus: int
    names: tuple[str, ...] = ()
    nccl: tuple[int, ...] = ()

    @property
    def shares(self) -> bool:
        """Whether two ranks will share the only GPU."""
        return self.gpus == 1 and self.nccl[:2] >= SHARING_SINCE

    @property
    def most(self) -> int:
        """The largest world."""
        return 2 if self.shares or not self.gpus else self.gpus

    def launch(self, function: Callable, *args: Any, world_size: int, seconds: float = 120) -> list:
        """Run the function on that many ranks, each on its GPU, and return their results."""
        if not self.gpus:
            return run(function, *args, world_size=world_size, timeout=seconds).results
        if world_size <= self.gpus:
            return run(function, *args, world_size=world_size, backend="nccl",
                       timeout=seconds).results  # fmt: skip
        os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
        try:
            return run(on_one_gpu, function, *args, world_size=world_size, init=False,
                       timeout=seconds).results  # fmt: skip
        finally:
            del os.environ["NCCL_MULTI_RANK_GPU_ENABLE"]


def on_one_gpu(function: Callable, *args: Any) -> Any:
    """Runs in a rank that shares GPU 0 with others: form the group there, then call."""
    here = torch.device("cuda", 0)
    torch.cuda.set_device(here)
    current().device = here
    dist.init_process_group("nccl", device_id=here)
    try:
        result = function(*args)
        torch.cuda.synchronize()
        return moved(result, torch.device("cpu"))
    finally:
        dist.destroy_process_group()


# ---- the exercises ---------------------------------------------------------------------------


def moved(value: Any, where: torch.device) -> Any:
    """Tensors and models in lists, tuples and dicts, on that device."""
    if isinstance(value, nn.Module):
        return value.to(where)  # a model stays itself, so its optimizer still knows it
    if isinstance(value, Tensor):
        return spread_out(value, where) if is_spread(value) else value.to(where)
    if type(value) in (list, tuple):
        return type(value)(moved(v, where) for v in value)
    if type(value) is dict:
        return {k: moved(v, where) for k, v in value.items()}
    if hasattr(value, "use"):  # it will use the answer, see course_exercises/drivers/driven.py
        vars(value).update(moved(vars(value), where))
    return value


def is_spread(t: Tensor) -> bool:
    """Whether there is memory between its elements, or they lie in another order."""
    return not t.is_contiguous() and not t.requires_grad


def spread_out(t: Tensor, where: torch.device) -> Tensor:
    """A copy with the same strides, and the same foreign elements between its own."""
    memory = torch.empty(0, dtype=t.dtype, device=t.device).set_(t.untyped_storage())
    copy = memory.to(where, copy=True)
    return copy.as_strided(t.shape, t.stride(), t.storage_offset())


def play_there(answer: Answer, by_rank: list[Kept], ddp: bool) -> Unpacked:
    """Runs in a rank: the case's arguments on this rank's device, and what became of them."""
    mine = [moved(args, device()) for args in by_rank[dist.get_rank()].value]
    seen = call_all(answer.load(), mine, ddp)
    for one in seen:
        one.returned, one.args = (moved(v, torch.device("cpu")) for v in (one.returned, one.args))
    return Unpacked(seen)


def solutions() -> Iterator[tuple[Exercise, Answer]]:
    """Every exercise of LESSONS that there is, with the lesson's own solution."""
    for path in sorted((ROOT / "notebooks" / "src").glob("*.py")):
        lesson = read_lesson(path)
        if path.name[:2] not in LESSONS:
            continue
        given = "\n".join(line for cell in lesson.cells if cell.kind == "code"
                          for line in imports(cell.solved))  # fmt: skip
        text = given
        for cell in lesson.answers:
            text += "\n\n" + cell.solved
            exercise = find(cell.exercise)
            if exercise.in_ranks:
                yield exercise, Answer(exercise.name, source=text, file=f"{path.name} (solved)")


def imports(code: str) -> Iterator[str]:
    """The import lines of a cell whose modules can be found here."""
    for node in ast.parse(code).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            name = node.names[0].name if isinstance(node, ast.Import) else node.module or ""
            if importlib.util.find_spec(name.split(".")[0]):
                yield ast.unparse(node)


def exercises(machine: Machine) -> Iterator[Item]:
    for exercise, answer in solutions():
        rng = random.Random(0)
        cases = [*exercise.core(rng), *exercise.sturdy(rng)]
        if any(c.busy for c in cases):
            yield Item(exercise.title, "not tried", "its check expects the times of modelled GPUs")
            continue
        cases = [c for c in cases if c.world <= machine.most and c.dtype == "float32"]
        cases = cases[: 6 if machine.gpus else 1]
        wrong = ""
        for case in cases:
            play = make_play(exercise, case, where="on GPUs")
            outcome: Run | CourseError
            try:
                results = machine.launch(play_there, answer, play.prepared.by_rank, exercise.ddp,
                                         world_size=case.world)  # fmt: skip
                outcome = Run(results, Trace(), 0.0, case.world, "nccl")
            except CourseError as error:
                outcome = error
            note_result(play, outcome)
            judge(exercise, play)
            if play.findings:
                wrong = f"{exercise.describe(case)}: {play.findings[0].text.splitlines()[0]}"
                break
        worlds = sorted({c.world for c in cases})
        if not cases:
            yield Item(exercise.title, "not tried", f"no case for {machine.most} ranks")
        elif wrong:
            yield Item(exercise.title, "failed", wrong)
        else:
            yield Item(exercise.title, "passed", f"{len(cases)} cases, {worlds} ranks")


# ---- measurements ----------------------------------------------------------------------------


def seconds_of(work: Callable[[], object], times: int = 20) -> float:
    """Median of several runs on this rank's device: by CUDA events, or by the clock on a CPU."""
    for _ in range(3):
        work()
    taken = []
    for _ in range(times):
        if device().type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            end.synchronize()
            taken.append(start.elapsed_time(end) / 1000)
        else:
            begin = time.perf_counter()
            work()
            taken.append(time.perf_counter() - begin)
    return sorted(taken)[times // 2]


def sweep(largest: int) -> list[tuple[int, float]]:
    """Runs in a rank: seconds of an all_reduce, by bytes."""
    out, nbytes = [], 1024
    while nbytes <= largest:
        tensor = torch.zeros(nbytes // 4, device=device())
        out.append((nbytes, seconds_of(lambda t=tensor: dist.all_reduce(t))))  # type: ignore[misc]
        nbytes *= 4
    return out


def bandwidth(machine: Machine) -> Iterator[Item]:
    n = machine.most
    if n < 2:
        yield Item("bus bandwidth", "not tried", "an exchange needs two ranks")
        return
    (points, *_) = machine.launch(sweep, 1 << (28 if machine.gpus else 20), world_size=n)
    told = [f"{nbytes:,} B: {2 * (n - 1) / n * nbytes / taken / 1e9:.3g} GB/s"
            for nbytes, taken in points]  # fmt: skip
    note = " (two ranks on one GPU: not a link)" if machine.shares else ""
    yield Item(f"bus bandwidth, {n} ranks{note}", "passed", "; ".join(told))


def wide(width: int) -> nn.Module:
    torch.manual_seed(0)
    hidden = [layer for _ in range(6) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, 10)).to(device())


def throughput(width: int, batch: int, half: bool) -> float:
    """Runs in a rank: samples a second of one rank under DDP."""
    model = DistributedDataParallel(wide(width))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(batch, width, device=device())
    targets = torch.randint(10, (batch,), device=device())

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device().type, torch.bfloat16, enabled=half):
            loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()

    return batch / seconds_of(step, 10)


def scaling(machine: Machine) -> Iterator[Item]:
    """Weak scaling: the same batch on every rank."""
    size = (4096, 1024) if machine.gpus else (64, 32)
    alone = 0.0
    for n in range(1, (machine.gpus or machine.most) + 1):
        if n & (n - 1) and n != machine.gpus:
            continue
        total = sum(machine.launch(throughput, *size, False, world_size=n))
        alone = alone or total
        share = f"{total / alone / n:.0%} of {n} times one rank"
        yield Item(f"DDP, ranks: {n}", "passed", f"{total:,.0f} samples/s, {share}")
    if machine.gpus == 1:
        yield Item("DDP on several GPUs", "not tried", "there is one GPU")


def half_precision(machine: Machine) -> Iterator[Item]:
    size = (4096, 1024) if machine.gpus else (64, 32)
    full, half = (machine.launch(throughput, *size, h, world_size=1)[0] for h in (False, True))
    yield Item("AMP, bfloat16, one rank", "passed",
               f"{half:,.0f} against {full:,.0f} samples/s, {half / full:.2f} times")  # fmt: skip


def hidden_part(width: int, batch: int) -> float | None:
    """Runs in a rank: of the time of NCCL's kernels, the part in which other kernels ran too."""
    from torch.profiler import ProfilerActivity, profile

    model = DistributedDataParallel(wide(width), bucket_cap_mb=16)
    inputs = torch.randn(batch, width, device=device())
    for _ in range(3):
        model(inputs).sum().backward()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        model(inputs).sum().backward()
        torch.cuda.synchronize()
    kernels = [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    talk = [(e.time_range.start, e.time_range.end) for e in kernels if "nccl" in e.name.lower()]
    work = [(e.time_range.start, e.time_range.end) for e in kernels if "nccl" not in e.name.lower()]
    spent = sum(end - start for start, end in talk)
    return common(talk, work) / spent if spent else None


def common(some: list[tuple[float, float]], others: list[tuple[float, float]]) -> float:
    """How much of the stretches ``some`` lies within the union of ``others``."""
    union: list[list[float]] = []
    for start, end in sorted(others):
        if union and start <= union[-1][1]:
            union[-1][1] = max(union[-1][1], end)
        else:
            union.append([start, end])
    return sum(max(0.0, min(e, end) - max(s, start)) for s, e in some for start, end in union)


def overlap(machine: Machine) -> Iterator[Item]:
    if machine.gpus < 2:
        yield Item("overlap under DDP", "not tried", "it needs two GPUs")
        return
    part = machine.launch(hidden_part, 4096, 1024, world_size=machine.gpus)[0]
    if part is None:
        yield Item("overlap under DDP", "failed", "the profiler saw no kernel of NCCL")
    else:
        yield Item("overlap under DDP", "passed",
                   f"{part:.0%} of the time of NCCL's kernels beside other kernels")  # fmt: skip


LAYERS, BACKWARD = 4, 2e-3  # of lesson 07's training step


def cycles_per_second() -> float:
    """How fast this rank's GPU counts in a kernel that only waits; 0 on a CPU."""
    if device().type != "cuda":
        return 0.0
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda._sleep(10_000_000)
    end.record()
    end.synchronize()
    return 10_000_000 / (start.elapsed_time(end) / 1000)


def backward(overlap: bool, length: int) -> float:
    """Runs in a rank: seconds of lesson 07's backward pass, real or modelled."""
    module = torch.get_device_module(device())
    gradients = [torch.ones(length, device=device()) for _ in range(LAYERS)]
    cycles = int(BACKWARD * cycles_per_second())
    dist.all_reduce(gradients[0])  # the first call connects
    dist.barrier()
    module.synchronize()
    start, works = time.perf_counter(), []
    for gradient in gradients:
        if cycles:
            torch.cuda._sleep(cycles)
        else:
            compute(BACKWARD)
        works.append(dist.all_reduce(gradient, async_op=True))
        if not overlap:
            works[-1].wait()
    for work in works:
        work.wait()
    module.synchronize()
    return time.perf_counter() - start


def link_of(machine: Machine, n: int, nbytes: int) -> Network:
    """A network that is as fast as an all_reduce of that many bytes was here."""
    taken = machine.launch(sweep, nbytes, world_size=n)[0][-1][1]
    return Network(latency=0.0, bandwidth=2 * (n - 1) / n * nbytes / taken)


def modelled(machine: Machine) -> Iterator[Item]:
    """The same program on this machine, and on modelled GPUs with a link as fast as was seen."""
    n, nbytes = machine.most, 1 << (26 if machine.gpus else 16)
    if n < 2:
        yield Item("the modelled GPU", "not tried", "an exchange needs two ranks")
        return
    network = link_of(machine, n, nbytes)
    for overlap in (False, True):
        seen = machine.launch(backward, overlap, nbytes // 4, world_size=n)[0]
        said = simulate(backward, overlap, nbytes // 4, world_size=n, network=network,
                        backend="nccl").results[0]  # fmt: skip
        yield Item(f"backward, {'overlapped' if overlap else 'one after another'}", "passed",
                   f"{1e3 * seen:.2f} ms, modelled {1e3 * said:.2f} ms")  # fmt: skip


PRESETS = {"A100": GPU.a100, "H100": GPU.h100, "H200": GPU.h200}


def transformer_step(width: int, batch: int) -> tuple[float, int]:
    """Runs in a rank: seconds of a training step, really or at true size, and the most bytes that
    were alive on a real GPU."""
    sizes = width, width // 64, 4 * width, 0.0
    layers = (nn.TransformerEncoderLayer(*sizes, batch_first=True) for _ in range(4))
    model = DistributedDataParallel(nn.Sequential(*layers).to(device()))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x = torch.randn(batch, 512, width, device=device())
    module, taken = torch.get_device_module(device()), []
    for _ in range(4):
        module.synchronize()
        start = time.perf_counter()
        with torch.autocast(device().type, torch.bfloat16):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        module.synchronize()
        taken.append(time.perf_counter() - start)
    return min(taken), module.max_memory_allocated() if device().type == "cuda" else 0


def true_size(machine: Machine) -> Iterator[Item]:
    """A small transformer really, and at its true size by the figures of this GPU's data sheet. In
    a rehearsal the figures are an A100's.
    """
    n, size = max(1, machine.gpus), (1024, 16) if machine.gpus else (128, 2)
    named = machine.names[0] if machine.gpus else "A100"
    preset = next((preset for name, preset in PRESETS.items() if name in named), None)
    if preset is None:
        yield Item("a step of a transformer", "not tried", f"no figures are known of {named}")
        return
    network = link_of(machine, n, 1 << 26) if n > 1 else Network()
    took, alive = machine.launch(transformer_step, *size, world_size=n)[0]
    world: dict[str, Any] = {"world_size": n, "network": network, "backend": "nccl"}
    said = simulate(transformer_step, *size, **world, gpu=preset(), play=[0])
    seconds, peak = said.results[0][0], said.memory.peak
    what = f"{1e3 * took:.2f} ms and {alive / 2**20:,.0f} MiB, at true size "
    what += f"{1e3 * seconds:.2f} ms and {peak / 2**20:,.0f} MiB"
    yield Item("a step of a transformer", "passed", what)


def digits() -> float:
    """Runs in a rank: what course_tools/jobs/train.py trains; its accuracy on the test digits."""
    import train
    from torch.utils.data import DataLoader, DistributedSampler

    data = load_digits()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, max(1, 64 // dist.get_world_size()), sampler=sampler)
    torch.manual_seed(0)
    model = DistributedDataParallel(train.digit_model().to(device()))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(8):
        sampler.set_epoch(epoch)
        train.train_epoch(model, optimizer, loader, device())
    return train.accuracy(model, load_digits(train=False), device())


def accuracy(machine: Machine) -> Iterator[Item]:
    for n in sorted({1, machine.most}):
        reached = machine.launch(digits, world_size=n)
        fine = min(reached) == max(reached) >= 0.97
        yield Item(f"digits, ranks: {n}", "passed" if fine else "failed",
                   f"test accuracy {reached[0]:.1%}, asked for 97%")  # fmt: skip


# ---- the report ------------------------------------------------------------------------------

PARTS = (exercises, accuracy, bandwidth, scaling, overlap, modelled, true_size, half_precision)


def collect(machine: Machine) -> list[Item]:
    """All items. A part that breaks is an item that failed, and the next part is tried."""
    items: list[Item] = []
    for part in PARTS:
        print(f"{part.__name__.replace('_', ' ')} …", flush=True)
        try:
            items += part(machine)
        except Exception as error:  # whatever a driver may raise: it belongs into the report
            told = (str(error).splitlines() or [""])[0]
            items.append(Item(part.__name__, "failed", f"{type(error).__name__}: {told}"))
    return items


def text_of(machine: Machine, items: list[Item]) -> str:
    head = f"{machine.gpus} GPUs: {', '.join(sorted(set(machine.names)))}"
    if not machine.gpus:
        head = "Rehearsal on CPUs, 0 GPUs: it shows that the report runs, and nothing about GPUs"
    nccl = ".".join(map(str, machine.nccl)) or "none"
    lines = [f"# {head}", "", f"PyTorch {torch.__version__}, NCCL {nccl}, "
             f"largest world {machine.most}", ""]  # fmt: skip
    for outcome in ("failed", "passed", "not tried"):
        mine = [item for item in items if item.outcome == outcome]
        lines += [f"## {outcome}: {len(mine)}", ""]
        lines += [f"- {item.name}: {item.what}" for item in mine] + [""]
    return "\n".join(lines)


def look(rehearse: bool) -> Machine | str:
    """The machine, or one line that says why there is nothing to look at."""
    if rehearse:
        return Machine(0)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        why = "PyTorch is built for CPUs" if torch.version.cuda is None else "PyTorch sees none"
        return f"make gpu needs an NVIDIA GPU, and {why}: nothing was measured, no report written."
    if not dist.is_nccl_available():
        return "make gpu needs NCCL, and this PyTorch has none: nothing was measured."
    names = tuple(torch.cuda.get_device_name(i) for i in range(count))
    return Machine(count, names, tuple(torch.cuda.nccl.version()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--rehearse", action="store_true", help="run on CPUs and gloo instead")
    args = parser.parse_args()
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    machine = look(args.rehearse)
    if isinstance(machine, str):
        print(machine)
        return NO_GPU
    items = collect(machine)
    args.out.mkdir(parents=True, exist_ok=True)
    text = text_of(machine, items)
    (args.out / "report.md").write_text(text)
    record = {"machine": asdict(machine), "torch": torch.__version__,
              "items": [asdict(item) for item in items]}  # fmt: skip
    (args.out / "report.json").write_text(json.dumps(record, indent=1) + "\n")
    print(text)
    return int(any(item.outcome == "failed" for item in items))


if __name__ == "__main__":
    sys.exit(main())
