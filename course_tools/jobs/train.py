"""Train on the digits with DistributedDataParallel, on one process or many, CPU or GPU.

    torchrun --standalone --nproc-per-node=2 train.py

torchrun starts the processes and tells each who it is; everything else is in here. On GPUs there is
one process per GPU, and they talk through NCCL; on CPUs they talk through gloo. train.sbatch and
train.yaml start the same file on several machines, which have to share the checkpoint's disk.

A job that is killed, at whatever moment, goes on with the same numbers when it is started again:
to the last bit, on as many ranks. See ``warm_up``, ``save`` and ``end_with_agent``.

Read single.py and ddp.py first: the same training in its shortest form, on one device and on many.
"""

# ruff: noqa: E402 - the number of the agent is taken before torch is imported
from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

AGENT = os.getppid()  # torchrun; it may be gone when torch has been imported, seconds later

import torch
import torch._dynamo  # see below
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from course_lib import load_digits

# DistributedDataParallel imports torch._dynamo by itself, which loads functions whose default group
# is the one that exists at that moment, and holds it: gloo's threads then outlive
# destroy_process_group(), and may abort a process that is ending (torch 2.15). So it comes first.


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10, help="passes through the data")
    parser.add_argument(
        "--batch-size", type=int, default=64, help="samples per step, all ranks together"
    )
    parser.add_argument("--lr", type=float, default=0.01, help="Adam's learning rate in epoch 0")
    parser.add_argument("--seed", type=int, default=0, help="for weights and shuffles")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        default=Path("digits.pt"),
        help="written after each epoch; a job that finds one continues from it",
    )
    return parser.parse_args()


def join_the_job() -> torch.device:
    """Form the group of all ranks, on this rank's own GPU if every process here can have one."""
    local_rank, here = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if torch.cuda.device_count() < here:
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


def end_with_agent() -> None:
    """Have this rank killed when torchrun's agent is. A rank that trained on alone would write into
    the checkpoint of the job that takes its place."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if "TORCHELASTIC_RUN_ID" in os.environ and os.getppid() != AGENT:
        raise SystemExit("torchrun's agent is gone")


def digit_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 10),
    )


def say(*words: object) -> None:
    """Print once, not once per rank."""
    if dist.get_rank() == 0:
        print(*words, flush=True)


def ranks_without(checkpoint: Path) -> list[int]:
    """The ranks that do not see what rank 0 writes beside the checkpoint."""
    # All starts use one name, so that the next one removes what a killed one has left.
    probe, words = checkpoint.with_name(checkpoint.name + ".probe"), [os.urandom(8).hex()]
    dist.broadcast_object_list(words, src=0)
    if dist.get_rank() == 0:
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        probe.write_text(words[0])
    dist.barrier()
    sees = [False] * dist.get_world_size()
    dist.all_gather_object(sees, probe.exists() and probe.read_text() == words[0])
    if dist.get_rank() == 0:
        probe.unlink()
    return [rank for rank, there in enumerate(sees) if not there]


def save(path: Path, state: dict) -> None:
    """Write the file on rank 0, completely or not at all. The others wait until it is there."""
    if dist.get_rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + ".unfinished")
        with unfinished.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)  # in one step: whoever opens the file finds it whole
    dist.barrier()


def load(path: Path, device: torch.device) -> dict:
    """Read the file on every rank, each to its own device, wherever it was written."""
    return torch.load(path, map_location=device, weights_only=True)


def found(path: Path) -> bool:
    """Whether rank 0 sees the file: one answer, the same on all ranks."""
    answer = [path.exists()]
    dist.broadcast_object_list(answer, src=0)
    return answer[0]


def warm_up(ddp: DistributedDataParallel, images: torch.Tensor) -> None:
    """A forward and a backward pass that train nothing, after every start.

    DDP puts its buckets in another order after its first backward pass, and the order changes the
    last digits of sums. A job that goes on would have its first pass at a step at which the killed
    one did not: on three or more ranks the curves would part. So no step of training is the first.
    """
    for _ in range(2):  # the second one begins with the new buckets
        ddp(images).sum().backward()
    ddp.zero_grad()


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader, device: torch.device
) -> float:
    """One pass over this rank's share; returns the mean loss over all ranks' samples."""
    model.train()
    total = torch.zeros(2, dtype=torch.float32, device=device)
    for images, labels in loader:
        # From pinned memory the copies are only queued; the host does not wait for them.
        images, labels = (t.to(device, non_blocking=True) for t in (images, labels))
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += torch.stack([loss.detach() * len(labels), loss.new_tensor(len(labels))])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


@torch.no_grad()
def accuracy(model: nn.Module, dataset: TensorDataset, device: torch.device) -> float:
    """Over the whole dataset, every sample counted once: no padding, one sum over the ranks.

    ``model`` is the module itself, not DDP's wrapper: evaluating it needs no communication.
    """
    model.eval()
    images, labels = dataset[dist.get_rank() :: dist.get_world_size()]
    right = (model(images.to(device)).argmax(1) == labels.to(device)).sum()
    dist.all_reduce(right)
    return right.item() / len(dataset)


def train(args: argparse.Namespace, device: torch.device) -> None:
    world_size = dist.get_world_size()
    say(f"{world_size} ranks, {dist.get_backend()}, rank 0 on {device}")
    if blind := ranks_without(args.checkpoint):
        seen = f"rank 0 saves to {args.checkpoint.resolve()}, and ranks {blind} do not see it"
        line = f"{seen}: give --checkpoint a path on a disk that all machines share"
        raise SystemExit(line if dist.get_rank() == 0 else 1)
    digits, test = load_digits(), load_digits(train=False)
    sampler = DistributedSampler(digits, seed=args.seed)
    loader = DataLoader(
        digits,
        max(1, args.batch_size // world_size),
        sampler=sampler,
        pin_memory=device.type == "cuda",
    )

    torch.manual_seed(args.seed)  # the weights; the sampler has its own
    model = digit_model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = ExponentialLR(optimizer, gamma=0.9)
    kept = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    losses: list[float] = []  # by epoch
    if found(args.checkpoint):
        state = load(args.checkpoint, device)
        for name, keeper in kept.items():
            keeper.load_state_dict(state[name])
        losses = state.get("losses", [float("nan")] * (state["epoch"] + 1))
        say(f"continues from {args.checkpoint.name} after epoch {state['epoch']}")
    ddp = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    warm_up(ddp, digits[:1][0].to(device))

    for epoch in range(len(losses), args.epochs):
        sampler.set_epoch(epoch)  # the order of the samples is that of the epoch's number
        # So is everything else that the epoch draws, as dropout does: no generator is ever saved.
        torch.manual_seed(1_000_003 * args.seed + 1009 * epoch + dist.get_rank())
        began = time.perf_counter()
        losses.append(train_epoch(ddp, optimizer, loader, device))
        rate = len(digits) / (time.perf_counter() - began)
        scheduler.step()
        say(
            f"epoch {epoch}  loss {losses[-1]:.4f}  "
            f"test accuracy {accuracy(model, test, device):.4f}  {rate:.0f} images/s"
        )
        state = {name: keeper.state_dict() for name, keeper in kept.items()}
        save(args.checkpoint, state | {"epoch": epoch, "losses": losses})

    fresh = digit_model().to(device)
    fresh.load_state_dict(load(args.checkpoint, device)["model"])
    right = accuracy(fresh, test, device)
    say(f"loaded on all {world_size} ranks: test accuracy {right:.4f}")


@record  # torchrun's table then has this rank's exception, and not only its exit code
def main() -> None:
    args = options()
    end_with_agent()
    device = join_the_job()
    try:
        train(args, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
