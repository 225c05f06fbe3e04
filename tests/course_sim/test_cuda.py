"""Scripts for GPUs in simulated ranks: what they ask is answered, and tensors have places."""

from __future__ import annotations

import builtins
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from course_lib import CourseError, Deadlock, Network, RankFailed, simulate


def play(fn, *args, ranks=2, nodes=1, **how):
    network = Network.cluster(nodes, ranks // nodes)
    how = {"init": False, "network": network} | how
    return simulate(fn, *args, world_size=ranks, backend="nccl", cuda=True, **how)


def start() -> torch.device:
    """As scripts begin."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


# ---- what is answered ---------------------------------------------------------------------------


def test_a_training_script_runs_as_it_is(tmp_path):
    """DDP with mixed precision, loader workers, SyncBatchNorm, events and a checkpoint."""

    def train(path):
        device = start()
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(16, 3, 4, 4), torch.randint(0, 5, (16,)))
        sampler: DistributedSampler = DistributedSampler(data)
        how = {"num_workers": 2, "pin_memory": True, "persistent_workers": True}
        loader = DataLoader(data, 4, sampler=sampler, **how)
        model: nn.Module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten())
        model = nn.Sequential(model, nn.Linear(16, 5))
        model = torch.compile(nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda())
        model = DistributedDataParallel(model, device_ids=[device.index])
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        scaler = torch.amp.GradScaler("cuda")
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = cross_entropy(model(x.to(device, non_blocking=True)), y.cuda())
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        last.record()
        torch.cuda.synchronize()
        assert first.elapsed_time(last) > 0
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), path)
        dist.barrier()
        loaded = torch.load(path, map_location=device)
        assert all(value.device == device for value in loaded.values())
        return loss.item(), torch.cuda.get_device_name(), torch.cuda.max_memory_allocated()

    done = play(train, str(tmp_path / "model.pt"))
    assert done.results[0][1:] == ("modelled GPU", 0)
    assert "[0] torch.compile is played eagerly" in done.output
    assert done.output.count("played eagerly") == 2


@pytest.mark.slow
def test_a_sharded_model_of_two_dimensions_runs_as_it_is():
    def block():
        return nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    def train():
        mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
        assert torch.cuda.current_device() == dist.get_rank()  # the mesh has chosen it
        with torch.device("meta"):
            model = nn.Sequential(block(), block())
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for part in model:
            parallelize_module(part, mesh["tp"], {"1": ColwiseParallel(), "3": RowwiseParallel()})
            fully_shard(part, mesh=mesh["dp"], mp_policy=policy)
        fully_shard(model, mesh=mesh["dp"])
        model.to_empty(device="cuda")
        torch.manual_seed(0)
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.LayerNorm):
                module.reset_parameters()
        optimizer = torch.optim.AdamW(model.parameters())
        losses = []
        for _ in range(2):
            x = torch.ones(4, 8, device="cuda")
            loss = checkpoint(model, x, use_reentrant=False).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, {str(p.device) for p in model.parameters()}

    done = play(train, ranks=4).results
    losses = done[0][0]
    assert losses[1] < losses[0]
    assert [row[0] for row in done] == [losses] * 4
    assert [row[1] for row in done] == [{f"cuda:{r}"} for r in range(4)]


def test_losses_are_those_of_ranks_on_the_cpu():
    def train(device):
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Linear(4, 2).to(device))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses = []
        for step in range(3):
            torch.manual_seed(10 * step + dist.get_rank())
            loss = model(torch.randn(8, 4).to(device)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def on_gpus():
        return train(start())

    assert play(on_gpus).results == simulate(train, "cpu", world_size=2).results


def test_sync_batch_norm_is_that_of_the_whole_batch():
    def normalise(x):
        device = start()
        norm = nn.SyncBatchNorm(3, momentum=0.5).to(device)
        mine = x[dist.get_rank() :: 2].to(device).requires_grad_()
        y = norm(mine)
        (y * torch.arange(y.numel(), device=device).view_as(y)).sum().backward()
        return y.detach().cpu(), mine.grad.cpu(), norm.running_var.cpu(), norm.weight.grad.cpu()

    torch.manual_seed(0)
    x = torch.randn(6, 3, 2)
    got = play(normalise, x).results
    whole, norm = x.clone().requires_grad_(), nn.BatchNorm1d(3, momentum=0.5)
    y = norm(whole)
    factor = torch.arange(18.0).view(3, 3, 2)
    (y[0::2] * factor).sum().add((y[1::2] * factor).sum()).backward()
    for r in range(2):
        torch.testing.assert_close(got[r][0], y[r::2].detach())
        torch.testing.assert_close(got[r][1], whole.grad[r::2], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(got[r][2], norm.running_var)
    torch.testing.assert_close(got[0][3] + got[1][3], norm.weight.grad)


@pytest.mark.parametrize(
    ("cuts", "kept"),
    [
        ((Shard(1),) * 3, Shard(1)),
        ((Shard(2),) * 3, Replicate()),  # each row looks at all others
    ],
)
def test_attention_is_sharded_by_rows_and_heads_alone(cuts, kept):
    torch.manual_seed(0)
    parts = [torch.randn(2, 4, 5, 8) for _ in range(3)]

    def attend():
        start()
        mesh = init_device_mesh("cuda", (2,))
        cut = [distribute_tensor(t.cuda(), mesh, [c]) for t, c in zip(parts, cuts, strict=True)]
        out = scaled_dot_product_attention(*cut, is_causal=True)
        assert isinstance(out, DTensor)
        assert out.placements == (kept,)
        return out.full_tensor().cpu()

    whole = scaled_dot_product_attention(*parts, is_causal=True)
    for got in play(attend).results:
        torch.testing.assert_close(got, whole)


def test_equal_shards_draw_equal_numbers_whatever_the_ranks_seeds():
    def draw():
        start()
        torch.manual_seed(dist.get_rank())
        mesh = init_device_mesh("cuda", (2,))
        return distribute_tensor(torch.zeros(4), mesh).normal_().to_local().tolist()

    first, second = play(draw).results
    assert first == second


def test_what_a_script_asks_of_devices():
    def ask():
        start()
        x = torch.ones(2, device="cuda")
        with torch.device("cuda"):
            default = torch.zeros(1)
        return (
            torch.cuda.is_available() and torch.accelerator.is_available(),
            torch.cuda.device_count(),
            str(torch.accelerator.current_accelerator()),
            [str(t.device) for t in (x, x[1:], x.data, x + 1, x.new_zeros(1), default, x.cpu())],
            [str(t.device) for t in (x.to(0), nn.Linear(1, 1).to(device="cuda:0").bias)],
            repr(x),
            abs(time.time() - began) < 3600,
            os.environ["LOCAL_WORLD_SIZE"],
            dist.get_backend(),
        )

    began = time.time()
    done = play(ask, ranks=4, nodes=2).results
    assert done[3] == (
        True,
        2,
        "cuda",
        ["cuda:1"] * 6 + ["cpu"],
        ["cuda:0"] * 2,
        "tensor([1., 1.], device='cuda:1')",
        True,
        "2",
        "nccl",
    )


# ---- what is told -------------------------------------------------------------------------------


def leave_batch_behind():
    nn.Linear(2, 2).to(start())(torch.ones(1, 2))


def reduce_on_the_host():
    start()
    dist.all_reduce(torch.ones(1))


def give_to_numpy():
    torch.ones(1, device=start()).numpy()


def forget_set_device():
    dist.init_process_group("nccl")
    dist.all_reduce(torch.ones(1, device="cuda"))


def number_gpus_by_rank():
    torch.cuda.set_device(int(os.environ["RANK"]))


def load_all_onto_one_gpu():
    """The checkpoint was saved on GPU 0, and no map_location says otherwise."""
    device, path = start(), "saved.pt"
    if dist.get_rank() == 0:
        torch.save(torch.ones(2, device=device), path)
    dist.barrier()
    torch.ones(2, device=device) + torch.load(path)


class OnGpu(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.ones(2, device="cuda")


def use_gpus_in_workers():
    start()
    next(iter(DataLoader(OnGpu(), num_workers=2)))


MIXED = "Expected all tensors to be on the same device, but found at least two devices"
TOLD = [
    (leave_batch_behind, MIXED, "(start())(torch.ones"),
    (reduce_on_the_host, "No backend type associated with device type cpu", "dist.all_reduce"),
    (load_all_onto_one_gpu, "found at least two devices, cuda:1 and cuda:0", "torch.load(path)"),
    (give_to_numpy, "can't convert cuda:0 device type tensor to numpy", ".numpy()"),
    (forget_set_device, "Duplicate GPU detected", "dist.all_reduce"),
    (use_gpus_in_workers, "Cannot re-initialize CUDA in forked subprocess", "next(iter"),
]


@pytest.mark.parametrize(("fn", "words", "line"), TOLD, ids=[row[0].__name__ for row in TOLD])
def test_it_is_told_as_on_gpus(fn, words, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RankFailed) as told:
        play(fn)
    assert words in str(told.value)
    assert line in str(told.value)


def test_a_gpu_that_a_machine_does_not_have_is_told():
    with pytest.raises(RankFailed, match="invalid device ordinal: there is no GPU 2, as this mach"):
        play(number_gpus_by_rank, ranks=4, nodes=2)


def test_a_ring_that_gloo_would_let_pass_is_told():
    def ring():
        device = start()
        rank, n = dist.get_rank(), dist.get_world_size()
        x, y = torch.ones(4, device=device), torch.empty(4, device=device)
        wait = [dist.irecv(y, (rank - 1) % n), dist.isend(x, (rank + 1) % n)]
        for work in wait:
            work.wait()

    with pytest.raises(Deadlock, match=r"dist\.batch_isend_irecv"):
        play(ring, ranks=3)


def test_what_has_to_pass_passes():
    """Numbers and indices from the host, copies between places, tensors that nobody has marked."""

    def mix(before):
        device = start()
        x = torch.arange(6.0, device=device)
        x = x + torch.tensor(1.0)
        x = x[torch.tensor([0, 1])] * before.to(device)[:2]
        x.copy_(torch.ones(2))
        model = nn.Linear(2, 2).to(device)
        model(x).sum().backward()
        model.load_state_dict(nn.Linear(2, 2).state_dict())
        model.weight.grad += torch.zeros(2, 2, device=device)
        return torch.where(x > 0, x, torch.tensor(0.0)).tolist()

    assert play(mix, torch.ones(6)).results == [[1.0, 1.0]] * 2


class Halve(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x / 2

    @staticmethod
    def backward(_, gradient):
        whole = torch.empty(2 * len(gradient), device=gradient.device)
        dist.all_gather_into_tensor(whole, gradient.contiguous())
        return whole[: len(gradient)] / 2


def test_backward_knows_where_its_gradients_are():
    def train():
        device = start()
        x = torch.ones(2, device=device, requires_grad=True)
        seen = []
        x.register_hook(lambda gradient: seen.append((gradient.is_cuda, gradient.get_device())))
        Halve.apply(x).sum().backward()
        return seen, x.grad.tolist()

    assert play(train).results == [([(True, r)], [0.5, 0.5]) for r in range(2)]


def test_what_needs_a_gpu_itself_is_told():
    def capture():
        start()
        torch.cuda.CUDAGraph()

    with pytest.raises(RankFailed, match=r"CUDAGraph\(\)\nThis needs a GPU itself"):
        play(capture)


def test_gloo_lies_beside_nccl_for_what_is_on_the_hosts():
    """In a group of its own, with tags, and in all groups of a script that names no backend."""

    def beside():
        start()
        group = dist.new_group(backend="gloo")
        peer, x = 1 - dist.get_rank(), torch.ones(1)
        dist.all_reduce(x, group=group)
        dist.monitored_barrier(group)
        works = [dist.irecv(torch.empty(1), peer, group, tag=tag) for tag in (1, 2)]
        works += [dist.isend(x, peer, group, tag=tag) for tag in (2, 1)]
        for work in works:
            work.wait()
        return x.item(), dist.get_backend(group), dist.get_backend()

    def both():
        dist.init_process_group()
        out = [None] * 2
        dist.all_gather_object(out, dist.get_rank())  # before any GPU has been chosen
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        for device in ("cpu", "cuda"):
            dist.all_reduce(torch.ones(1, device=device))
        return out

    assert play(beside).results == [(2.0, "gloo", "nccl")] * 2
    assert play(both).results == [[0, 1]] * 2


def test_a_rank_may_see_one_gpu_alone():
    def see():
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]
        dist.init_process_group("nccl")
        x = torch.ones(1, device="cuda:0")
        dist.all_reduce(x)
        return torch.cuda.device_count(), x.item()

    assert play(see).results == [(1, 2.0)] * 2


def test_what_is_one_for_a_process_is_each_ranks_own():
    """print, the default device, and the table of operators that loss_parallel adds to."""

    def go(logits):
        device = start()
        if dist.get_rank():
            builtins.print = lambda *_: None
            torch.set_default_device(device)
        print("printed")
        mesh = init_device_mesh("cuda", (2,))
        parts = distribute_tensor(logits.cuda(), mesh, [Shard(1)]).requires_grad_()
        with loss_parallel():
            loss = cross_entropy(parts, torch.tensor([0, 3], device="cuda"))
            loss.backward()
        return loss.item(), str(torch.empty(0).device), str(torch.get_default_device())

    torch.manual_seed(0)
    logits = torch.randn(2, 4)
    done = play(go, logits)
    loss = pytest.approx(cross_entropy(logits, torch.tensor([0, 3])).item())
    assert done.results == [(loss, "cpu", "cpu"), (loss, "cuda:1", "cuda:1")]
    assert done.output == "[0] printed\n"


def test_what_libraries_do_beside_training():
    """They name torch.Generator in annotations, and read files in threads."""

    def work():
        start()

        def draw(generator: torch.Generator | None = None):
            return torch.ones(2).uniform_(generator=generator)

        ours = torch.Generator("cuda")
        assert isinstance(ours, torch.Generator) and ours.device.type == "cuda"
        assert isinstance(torch.default_generator, torch.Generator)
        draw(torch.Generator().manual_seed(0))
        with ThreadPoolExecutor() as pool:
            squares = list(pool.map(lambda x: x * x, range(3)))
            failed = pool.submit(lambda: 1 // 0)
        assert isinstance(failed.exception(), ZeroDivisionError)
        return squares

    assert play(work).results == [[0, 1, 4]] * 2


def test_gpus_are_modelled_with_nccl_only():
    with pytest.raises(CourseError, match="cuda=True: GPUs are modelled with backend='nccl' only"):
        simulate(start, world_size=2, cuda=True)


def test_outside_of_ranks_nothing_has_changed():
    before = torch.cuda.is_available, torch.load, torch.Tensor.to, torch.compile
    play(start)
    assert before == (torch.cuda.is_available, torch.load, torch.Tensor.to, torch.compile)
    assert torch.ones(1).device.type == "cpu"
