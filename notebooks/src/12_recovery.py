# %% [markdown] id="12-e95f95"
# # Go on after a death
#
# **Kill a rank, and get the same loss curve.**
#
# ![The loss of a job that was stopped after nine steps and went on: with everything restored it lies on the curve of the undisturbed job, and with one thing forgotten it leaves it](../../figures/12_recovery.png)
#
# *Where this goes: a job is stopped after step 9 and goes on. With everything restored the curve does not show it. With one thing forgotten the curve is a different one.*
#
# | | |
# |---|---|
# | **Do** | stop a job and let it go on with one thing forgotten; kill a save; kill a job twice under torchrun and get the same losses; load on two ranks what four have saved; let ranks go on when another dies; compute how often to save |
# | **Learn** | what a checkpoint holds; how a file changes in one step; why DDP is not equal to itself after a restart; three rules for a save in the background; the formula of Young and Daly; how to keep the global batch in another world |
# | **Need** | lessons [06](06_ddp.ipynb) (DDP, samplers, torchrun) and [10](10_mini_ddp.ipynb) (buckets) |
# | **Time** | about 75 minutes with the required exercise, 125 with the optional ones as well |
#
# ## Failures are a rate
#
# Meta counted 419 unexpected interruptions in 54 days when it trained Llama 3 on 16,384 GPUs: one every three hours and, for each GPU, one in almost six years.
#
# ## What a checkpoint has to hold
#
# Our *reference* is a job that nobody disturbs: 2 ranks, 24 samples each, 6 batches in an epoch, 20 steps. The model has dropout, the optimizer has momentum, and a scheduler lowers the learning rate at each step.
#
# A second job stops after step 9, in the middle of epoch 1. (Epochs count from 0.) A third job, in new processes, takes over what the second has left. It needs more than weights:
#
# * the **optimizer**'s state: momentum, or Adam's averages;
# * the **scheduler**'s state: which learning rate comes next;
# * the **position**: the epoch, for `set_epoch`, and how many batches of it have been used;
# * the **generators**: dropout draws random numbers, each rank its own. A dataset's samples may draw as well, from torch's, numpy's or Python's generator. On a GPU dropout draws from CUDA's generator. A **GradScaler** has a state, too.
#
# In the next cells' loop `forget` names one thing that is not restored. With `early` the generators are restored before `iter(loader)`, and otherwise after it. Only the generators differ between ranks: they are gathered, so one rank's state is enough.
#
# **Predict.** Four jobs go on after step 9. Each has forgotten one thing: the optimizer's state, the scheduler's, the position or the generators. For which of them does PyTorch raise an error? Write it into `guess`.

# %% id="12-8cba00"
import copy, math, os, random, signal, tempfile, threading, time
from pathlib import Path
import torch
import torch.distributed as dist
from torch import nn
from course_lib import check, draw, run

# %% id="12-a759f3"
from itertools import islice
from types import SimpleNamespace
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def fresh_job():
    torch.manual_seed(0)
    x = torch.randn(48, 2)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.85**step)
    return SimpleNamespace(model=model, optimizer=optimizer, scheduler=scheduler, batch_size=4,
                           dataset=TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long()))

def step_of(job, x, y):
    loss = cross_entropy(job.model(x), y)
    job.optimizer.zero_grad()
    loss.backward()
    for p in job.model.parameters():
        dist.all_reduce(p.grad, dist.ReduceOp.AVG)
    job.optimizer.step()
    job.scheduler.step()

# %% id="12-95d892"
@torch.no_grad()
def score(job):
    x, y = job.dataset.tensors
    loss = cross_entropy(job.model.eval()(x), y).item()
    job.model.train()
    return loss

# %% id="12-2b3edd"
def train(until, saved=None, forget="", early=False):
    job, step, curve, own = fresh_job(), 0, [], None
    parts = {name: getattr(job, name) for name in ("model", "optimizer", "scheduler")}
    sampler = DistributedSampler(job.dataset, seed=0)
    loader = DataLoader(job.dataset, job.batch_size, sampler=sampler)
    torch.manual_seed(1000 * bool(saved) + dist.get_rank())  # a new process draws others
    if saved:
        step, own = saved["step"], saved["generators"][dist.get_rank()]
        own = None if forget == "generators" else own
        for name in parts.keys() - {forget}:
            parts[name].load_state_dict(saved[name])
    while step < until:
        sampler.set_epoch(step // len(loader))
        if own is not None and early:
            torch.set_rng_state(own)
        skip = 0 if forget == "position" else step % len(loader)
        for x, y in islice(loader, skip, skip + until - step):
            if own is not None and not early:
                torch.set_rng_state(own)
            step_of(job, x, y)
            own, step, curve = None, step + 1, [*curve, score(job)]
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, torch.get_rng_state())
    state = {name: part.state_dict() for name, part in parts.items()}
    return curve, state | {"step": step, "generators": every}

# %% id="12-96bfc3"
guess = None

def jobs(saved, *forgotten):
    return [train(20, copy.deepcopy(saved), forget) for forget in forgotten]

def goes_on(stop, early):
    return train(20, train(stop)[1], early=early)[0] == whole[stop:]

half, saved = run(train, 9, world_size=2).results[0]
forgotten = ("nothing", "optimizer", "scheduler", "position", "generators")
(whole, _), *rests = run(jobs, None, "", world_size=2).results[0] + run(
    jobs, saved, *forgotten, world_size=2).results[0]
curves = {"undisturbed": (range(1, 21), whole)}
for forget, (rest, _) in zip(forgotten, rests, strict=True):
    assert (half + rest == whole) == (forget == "nothing")
    curves[f"{forget} forgotten"] = (range(10, 21), rest)
print("your guess:", guess, "  errors: none")
for stop in (11, 12, 13):
    late, early = (run(goes_on, stop, e, world_size=2).results[0] for e in (False, True))
    print(f"stopped after step {stop}:  equal as it is: {late}  with early=True: {early}")
    assert (late, early) == (stop % 6 > 0, stop % 6 == 0)
draw.lines(curves, "step", "loss", formulas=["undisturbed"], caption="If nothing is forgotten, the "
           "curve is that of the undisturbed job, bit for bit. Every other curve leaves it.")

# %% [markdown] id="12-5bc849"
# No error, and each curve looks like training. So test a resume by equality with an undisturbed job: stop in the middle of an epoch, at its end, and one step after. On a GPU that needs deterministic kernels.
#
# An epoch has 6 batches, and a job that stops after 12 leaves the curve. So our own loop has a mistake, and step 9 did not show it. `iter(loader)` draws a number from torch's generator, even if the sampler has a generator of its own. `train` restores the generators after that call or, with `early`, before it. In the middle of an epoch the saved job has already called `iter(loader)`, so restore after the call. At an epoch's end it has not called it for the next epoch, so restore before the call.
#
# If samples draw in the loader's workers, save the state before the epoch's `iter(loader)`, too: the workers get their seeds there.
#
# ## Break it: a save that is killed
#
# A job may also be killed while it saves. `torch.save(state, path)` opens the old checkpoint and empties it. Until the last byte is written, there is neither the old state nor the new one.
#
# The safe way writes another file, and then gives that file the checkpoint's name. `os.replace` does this in one step: whoever opens the path finds the old file or the new one. Call `os.fsync` before it. The system keeps bytes in memory for a while, and may write the name to the disk before the bytes. Then a power cut would leave the right name on half a file. (`flush` hands the system what Python itself keeps.)
#
# `after_death` saves state 1. Then a child process saves state 2, and the system kills it when its file has grown to k bytes. (`RLIMIT_FSIZE` is the limit.) Guess first, for both ways: what does `torch.load` find?

# %% id="12-adbb91"
import resource, warnings

def onto_the_path(state, path):
    torch.save(state, path)

def replaced(state, path):
    with open(path + ".unfinished", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".unfinished", path)

def after_death(save, k, path):
    save({"number": 1, "w": torch.ones(3000)}, path)
    warnings.simplefilter("ignore")  # Python 3.12 warns: a process with threads is forked
    if os.fork() == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (k, k))
        save({"number": 2, "w": torch.ones(3000)}, path)
        os._exit(0)
    os.wait()
    try:
        return torch.load(path, weights_only=True)["number"]
    except Exception:
        return "lost"

# %% id="12-3210de"
files, sizes = tempfile.TemporaryDirectory(), (0, 1, 1000, 8000, 12_000, 10**6)
found = [[run(after_death, save, k, f"{files.name}/state.pt", world_size=1).results[0]
          for k in sizes] for save in (onto_the_path, replaced)]
assert found == [["lost"] * 5 + [2], [1] * 5 + [2]]  # with room enough, the new one
draw.bars({"onto the path": found[0].count("lost"), "replaced": found[1].count("lost")}, exact=True,
          unit="deaths of 5", caption="Each death loses an overwritten file, never a replaced one.")

# %% [markdown] id="12-33b1ef"
# ## Your turn: Checkpoint
#
# **Required · 12.1 · difficulty ●●○ · about 20 minutes**
#
# **Goal.** A class that saves and loads. `path` is a string, in a folder that exists. A process may be killed at any moment of `save`, also twice in a row. Then `load` in the next process returns the last state or the new one, whole, or None if nothing was ever saved. If the file is no checkpoint, `load` raises an error. (None would let the job write over a file that could be mended.)
#
# **Budget:** a file gets its name only after its bytes are synced. At most one other file of yours lies beside it, and the next save clears what a killed one has left. *Sturdy* adds a full disk (`save` raises an error, and the last state is still there), damaged and foreign files at the path, and files of others in the folder, even another checkpoint that is saved at the same time.
#
# A pickle can run any code when it is loaded. `torch.load(path, weights_only=True)` takes tensors and plain values alone.
#
# <details>
# <summary>Hint: where does the unfinished file lie?</summary>
#
# It lies beside the path, and has the path's whole name with an ending, the same at each save. From another disk a move would be a copy, byte by byte. With new names, the leftovers of killed saves would fill the disk.
#
# </details>

# %% exercise="Checkpoint" role="answer" points=10 required=true difficulty=2
class Checkpoint:
    """One state on the disk: whenever a process is killed, the last one or the new one is there."""

    def __init__(self, path: str):
        """The checkpoint's own file, in a folder that exists; nothing is written yet."""
        ### BEGIN SOLUTION
        self.path, self.unfinished = path, path + ".unfinished"
        ### END SOLUTION

    def save(self, state: dict) -> None:
        """Put the state in the place of the last one, in one step."""
        ### BEGIN SOLUTION
        with open(self.unfinished, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.unfinished, self.path)
        ### END SOLUTION

    def load(self) -> dict | None:
        """The state that was saved last, or None if none ever was."""
        ### BEGIN SOLUTION
        if not os.path.exists(self.path):
            return None
        return torch.load(self.path, weights_only=True)
        ### END SOLUTION

# %% exercise="Checkpoint" role="try"
with tempfile.TemporaryDirectory() as own:
    mine = Checkpoint(f"{own}/mine.pt")
    print("before:", mine.load())
    mine.save({"step": 9, "weight": torch.ones(2)})
    print("after: ", mine.load(), sorted(p.name for p in Path(own).iterdir()))

# %% exercise="Checkpoint" role="check"
check(Checkpoint)

# %% [markdown] id="12-004fe2"
# ## DDP is not equal to itself after a restart
#
# Our loop averaged gradients parameter by parameter. Under DDP, on three ranks or more, a job that restores *everything* still leaves the curve, in the last digits.
#
# The reason is in lesson 10. In its first backward pass DDP guesses the order in which gradients come. From the second pass on, it fills its buckets in the order that it has seen. If a bucket has other contents, gloo adds up the ranks' numbers in another order, and sums of floats depend on the order. (With two ranks there is only one order, a + b.) A job that nobody kills has the new buckets at step 4. A job that goes on after step 3 makes its first pass there.
#
# The cell makes 6 steps in one go, and then 3 and 3 with a new wrapper between them, in three ways: as it is; with two passes that train nothing after each start; and with `find_unused_parameters=True`. (Make these passes *before* you restore the generators: dropout draws there.) [train.py](../../course_tools/jobs/train.py) makes them after every start, in `warm_up`. With `find_unused_parameters` DDP does not rebuild its buckets, and each step takes more time. Guess first: in which of the three ways do the weights differ?

# %% id="12-98fef2"
def some_steps(first, last, model, optimizer, warm, unused):
    ddp = DistributedDataParallel(model, find_unused_parameters=unused)
    for _ in range(2 * warm):
        ddp(torch.ones(1, 33)).sum().backward()
    for k in range(first, last):
        draws = torch.Generator().manual_seed(100 * k + dist.get_rank())
        optimizer.zero_grad()
        ddp(torch.randn(5, 33, generator=draws)).square().mean().backward()
        optimizer.step()

def parted(warm, unused):
    ends = []
    for lives in ([(0, 6)], [(0, 3), (3, 6)]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(33, 300), nn.ReLU(), nn.Linear(300, 64), nn.ReLU(),
                              nn.Linear(64, 7))
        if unused:
            model.unused = nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for first, last in lives:
            some_steps(first, last, model, optimizer, warm, unused)
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    return int((ends[0] != ends[1]).sum()), (ends[0] - ends[1]).abs().max().item()

# %% id="12-8698e6"
ways = {"as it is": (False, False), "after two passes that train nothing": (True, False),
        "with find_unused_parameters": (False, True)}
for name, way in ways.items():
    many, most = run(parted, *way, world_size=3).results[0]
    print(f"{name}: {many and f'~{many}'} weights differ" + f" by at most ~{most:.0e}" * (many > 0))
    assert (many > 0) == (name == "as it is") and most < 1e-5

# %% [markdown] id="12-ba8c91"
# ## Your turn: train_resumable
#
# **Optional · 12.2 · difficulty ●●● · about 40 minutes**
#
# **Goal.** Write a training loop that goes on as if nobody had stopped it. `job` has `model` (equal weights on all ranks, dropout), `optimizer`, `scheduler`, `dataset` (its samples may draw from torch's, numpy's or Python's generator) and `batch_size` (per rank), all of them fresh. As in 12.1, a process that dies in the middle of a save must lose nothing. (`fsync` is not checked here.)
#
# * Step k of epoch e takes the k-th batch of a `DataLoader` with `DistributedSampler(job.dataset, seed=0)` after `set_epoch(e)`. The loss is the cross-entropy. Gradients begin at zero and are averaged over the ranks. Then come `optimizer.step()`, `scheduler.step()`, and the checkpoint, which one rank writes.
# * The loader has no generator of its own, so `iter(loader)` draws from torch's. Nothing is seeded anew.
# * It trains to step `until`, counted from the very first one. If `folder` has a checkpoint, it goes on from that.
# * It returns this rank's own losses of the steps made now.
#
# Losses and weights are compared, within 1e-5, with those of the same loop, undisturbed. DDP would change the last bits. Jobs end anywhere in an epoch. `weights_only=True` does not take numpy's state as it is: make its array a list.
#
# <details>
# <summary>Hint: when are the generators restored?</summary>
#
# Batches that are skipped draw numbers, too, and so does the batch after them. In the middle of an epoch: `it = iter(loader)`, `next(it)` for each batch that is skipped, restore, `for x, y in it`. At an epoch's start, restore before `iter(loader)`.
#
# </details>

# %% exercise="train_resumable" role="answer" points=12 required=false difficulty=3
def train_resumable(job, folder: str, until: int) -> list[float]:
    """Train to step until, from the folder's checkpoint if there is one; save after each step.

    Every rank calls it. Returns this rank's losses of the steps made now.
    """
    ### BEGIN SOLUTION
    import numpy

    path, rank, n = os.path.join(folder, "state.pt"), dist.get_rank(), dist.get_world_size()

    def generators():
        kind, keys, *rest = numpy.random.get_state()
        return [torch.get_rng_state(), [kind, keys.tolist(), *rest], random.getstate()]

    def restore(states):
        torch.set_rng_state(states[0])
        numpy.random.set_state(tuple(states[1]))
        random.setstate(states[2])

    parts = {"model": job.model, "optimizer": job.optimizer, "scheduler": job.scheduler}
    step, own, losses = 0, None, []
    if os.path.exists(path):
        state = torch.load(path, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        step, own = state["step"], state["generators"][rank]
    sampler = DistributedSampler(job.dataset, seed=0)
    loader = DataLoader(job.dataset, job.batch_size, sampler=sampler)
    job.model.train()
    while step < until:
        used = step % len(loader)
        sampler.set_epoch(step // len(loader))
        if own and not used:
            restore(own)
        batches = iter(loader)
        for _ in range(used):
            next(batches)
        if own and used:
            restore(own)
        own = None
        for x, y in batches:
            loss = cross_entropy(job.model(x), y)
            job.optimizer.zero_grad()
            loss.backward()
            for p in job.model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= n
            job.optimizer.step()
            job.scheduler.step()
            losses += [loss.item()]
            step += 1
            every = [None] * n
            dist.all_gather_object(every, generators())
            if rank == 0:
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save(state | {"step": step, "generators": every}, path + ".unfinished")
                os.replace(path + ".unfinished", path)
            dist.barrier()
            if step == until:
                break
    return losses
    ### END SOLUTION

# %% exercise="train_resumable" role="try"
def in_lives(folder, *ends):
    return [loss for until in ends for loss in train_resumable(fresh_job(), folder, until)]
for stop in (5, 6, 7):
    at_once, in_two = (run(in_lives, tempfile.mkdtemp(dir=files.name), *ends, world_size=2).results
                       for ends in ((9,), (stop, 9)))
    print(f"stopped after step {stop}:", "equal" if at_once == in_two else "NOT equal")

# %% exercise="train_resumable" role="check"
check(train_resumable)

# %% [markdown] id="12-94050f"
# ## A real job, killed while it saves
#
# `torchrun --max-restarts=3` starts **all** ranks again when one dies. The healthy ones get SIGTERM at once, and SIGKILL after 30 seconds. `TORCHELASTIC_RESTART_COUNT` tells a rank how often the ranks have been started again. torchrun brings back no state: that is the script's task.
#
# The time from one start to the next is a *life* of the ranks. Under gloo a plain restart may fail. All lives share a store that torchrun's agent (lesson 06) keeps, and a new rank may find a dead one's address in it. Then the new rank cannot connect, or waits for ever. `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` gives each life a store of its own.
#
# The script runs train.py, and its ranks die twice. In the first life rank 0 kills itself with SIGKILL in its second save: the file is written, but does not have its name yet. In the second life rank 1 kills itself in its 30th backward pass, in the last epoch.

# %% id="12-d36c1b"
import io, runpy, subprocess, sys
from contextlib import redirect_stdout
import course_tools

script = str(Path(course_tools.__file__).parent / "jobs" / "train.py")
dying = """
import itertools, os, runpy, signal, sys, torch
def deadly(real, life, number):
    calls = itertools.count(1)
    def call(*given):
        if next(calls) == number and os.environ["TORCHELASTIC_RESTART_COUNT"] == life:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given)
    return call
if os.environ["RANK"] == "0": os.replace = deadly(os.replace, "0", 2)
else: torch.Tensor.backward = deadly(torch.Tensor.backward, "1", 30)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
def undisturbed(checkpoint):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.argv = [script, "--epochs=3", f"--checkpoint={checkpoint}"]
    with redirect_stdout(io.StringIO()):
        runpy.run_path(script, run_name="__main__")

# %% id="12-aa56e4"
Path(files.name, "dying.py").write_text(dying)
torchrun = "import torch._dynamo, torch.distributed.run as torchrun; torchrun.main()"
variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "CUDA_VISIBLE_DEVICES": "",
             "OMP_NUM_THREADS": "1", "TMPDIR": files.name}
done = subprocess.run(
    [sys.executable, "-c", torchrun, "--standalone", "--nproc-per-node=2", "--max-restarts=2",
     "--run-path", "--start-method=fork", "dying.py", script, "--epochs=3",
     "--checkpoint=killed.pt"],
    cwd=files.name, env=os.environ | variables, text=True, timeout=120, capture_output=True)
assert done.returncode == 0, done.stderr
again = [line for line in done.stdout.splitlines() if line.startswith("continues")]
print(*again, sep="\n")

run(undisturbed, f"{files.name}/whole.pt", world_size=2, init=False)
of_whole, of_killed = (torch.load(f"{files.name}/{name}.pt", weights_only=True)["losses"]
                       for name in ("whole", "killed"))
assert of_whole == of_killed and [line[-1] for line in again] == ["0", "1"]  # after which epochs
draw.lines({"undisturbed": (range(3), of_whole), "killed twice": (range(3), of_killed)}, "epoch",
           "loss", formulas=["undisturbed"], caption="The losses are those of the undisturbed "
           "job, digit for digit, in spite of two deaths: one in a save and one in an epoch.")

# %% [markdown] id="12-3efb6e"
# ## When no rank holds the state
#
# With FSDP every rank holds a part of each parameter and of Adam's averages (a *shard*). To gather all of them on rank 0 takes memory that rank 0 may not have. **Distributed Checkpoint** lets each rank write its own shards into a folder, with an index. On loading each rank reads what *its* shards need, so the world may have another size.
#
# You hand `dcp.load` a state with the right shapes, and `dcp.load` fills it in place. `get_state_dict` and `set_state_dict` give parameters the same names in any world.
#
# `dcp.async_save` copies the state (*staging*), and a thread writes the copy while training goes on. By default `async_save` returns when the copy is made. With a *stager* that copies in a thread there are two futures, one of the copy and one of the write. A save in the background costs a copy of the state in memory, and needs three rules:
#
# * **Make no step before staging has ended.** The step would change what is being copied: lesson 01's hazard again.
# * **Keep the last checkpoint until the write has ended.** A job killed before then has no other.
# * **Ask the write's future before the next save.** An error in the background shows nowhere else.
#
# `Late` stands for a large state on a busy machine: its copy begins only when `may` is set.

# %% id="12-3e8cd9"
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

def sharded(folder, load):
    torch.manual_seed(int(load))  # the second job begins with other weights
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))
    for part in [*model, model]:
        fully_shard(part)
    adam = torch.optim.Adam(model.parameters())
    if not load:
        model(torch.ones(2, 64)).square().mean().backward()
        adam.step()
    weights, averages = get_state_dict(model, adam)
    if load:
        dcp.load({"model": weights, "optimizer": averages}, checkpoint_id=folder)
        set_state_dict(model, adam, model_state_dict=weights, optim_state_dict=averages)
        dcp.save({"model": weights, "optimizer": averages}, checkpoint_id=folder + "-2")
    else:
        dcp.save({"model": weights, "optimizer": averages}, checkpoint_id=folder)
    held = [t for p in model.parameters() for t in (p, adam.state[p]["exp_avg"])]
    return [t.full_tensor().detach() for t in held], sum(t.to_local().nbytes for t in held)

# %% id="12-7d3c35"
on_four, on_two, again = (run(sharded, f"{files.name}/{folder}", load, world_size=n).results[0]
    for folder, load, n in (("shards", False, 4), ("shards", True, 2), ("shards-2", True, 4)))
assert all(map(torch.equal, [*on_four[0], *on_four[0]], [*on_two[0], *again[0]]))
draw.bars({"saved, each of 4": on_four[1], "loaded, each of 2": on_two[1], "again 4": again[1]},
          unit="bytes", exact=True, caption="Four ranks saved. Two loaded that and saved it again, "
          "and four loaded this: the numbers are the same to the last digit.")

# %% id="12-ef731e"
from concurrent.futures import ThreadPoolExecutor
from torch.distributed.checkpoint.staging import AsyncStager

class Late(AsyncStager):
    def stage(self, state):
        return ThreadPoolExecutor(1).submit(lambda: self.may.wait() and copy.deepcopy(state))

def step_while_saving(folder, waits):
    weights, stager, began = torch.zeros(3_000_000), Late(), time.perf_counter()
    stager.may = threading.Event()
    saving = dcp.async_save({"weights": weights}, checkpoint_id=folder, async_stager=stager)
    assert not Path(folder, ".metadata").exists()  # what dcp.load looks for
    if waits:
        stager.may.set()
        saving.staging_completion.result()
    staged = time.perf_counter() - began
    weights += 1  # a step of training
    stager.may.set()
    saving.upload_completion.result()
    written = time.perf_counter() - began
    dcp.load(found := {"weights": torch.empty(3_000_000)}, checkpoint_id=folder)
    return found["weights"].unique().tolist(), staged, written

def fails(folder):
    return dcp.async_save({"step": 1}, checkpoint_id=folder).exception() is not None

# %% id="12-80a5d1"
(hazard, _, _), (safe, staged, written) = (
    run(step_while_saving, f"{files.name}/{w}", w, world_size=2).results[0] for w in (False, True))
print(f"zeros were saved; a step before staging ends: {hazard}, after it: {safe}")
print(f"training waited {staged:.2f} s for staging; the file was there after {written:.2f} s")
[failed] = run(fails, f"{files.name}/state.pt/no", world_size=1).results  # a file is no folder
assert (hazard, safe, failed) == ([1.0], [0.0], True)

# %% [markdown] id="12-caa38f"
# ## How often to save
#
# The *MTBF* is the mean time between failures. If each of n parts fails on its own, and one failure ends the job, then
#
# MTBF of the job = MTBF of one part / n  (in hours).
#
# A save takes δ seconds in which nothing is trained. If you save every τ seconds, saving takes a share of δ/τ of the time. A failure throws away what was trained since the last save, τ/2 seconds on average, once every MTBF seconds:
#
# $$\text{share lost}\approx\frac{δ}{τ}+\frac{τ}{2\,\text{MTBF}},\text{ smallest at }τ=\sqrt{2δ\,\text{MTBF}}$$
#
# This is Young's formula (Daly adds terms). It holds while δ is much smaller than τ, and τ much smaller than the MTBF.
#
# The second cell simulates a save of 10 s and a failure every hour, on average. Guess first: which τ is best?

# %% id="12-21231e"
of_one, worlds = 54 * 24 / 419 * 16_384, [8, 64, 512, 4096, 32768]  # hours
assert round(of_one / 16_384) == 3 and 5.5 < of_one / (24 * 365) < 6
draw.lines({"MTBF of the job": (worlds, [of_one / n for n in worlds])}, "GPUs", "hours",
           loglog=True, exact=True, caption="Eight GPUs of this kind run for most of a year "
           "between two failures, and thousands of them for some hours.")

# %% id="12-630299"
save_seconds, mtbf = 10, 3600
best = math.sqrt(2 * save_seconds * mtbf)

def formula(every):
    return save_seconds / every + every / (2 * mtbf)

def simulated(every, failures=20_000):
    draws, kept, total = random.Random(0), 0, 0
    for _ in range(failures):
        alive = draws.expovariate(1 / mtbf)
        kept += alive // (every + save_seconds) * every  # what a whole period has saved
        total += alive
    return 1 - kept / total

times = [best * factor for factor in (0.25, 0.5, 1, 2, 4)]
lost = [simulated(t) for t in times]
assert round(best) == 268 and min(lost) == lost[2]
assert [round(8 * formula(t) / formula(best)) for t in times] == [17, 10, 8, 10, 17]
assert all(abs(a - formula(t)) < 0.03 for a, t in zip(lost, times, strict=True))
draw.lines({"simulated failures": (times, lost),
            "δ/τ + τ/(2·MTBF)": (times, [*map(formula, times)])}, "seconds between saves",
           "share lost", logx=True, exact=True, ymin=0, formulas=["δ/τ + τ/(2·MTBF)"],
           caption="A save every 268 s is best. If you save half or twice as often, you lose "
           "about a quarter more; if four times as often, twice as much.")

# %% [markdown] id="12-b8b7ec"
# ## Another world, the same global batch
#
# Of eight machines one is broken, and the job goes on with seven. If the batch *per rank* stays, the global batch shrinks, and the learning rate no longer fits it (lesson 05). So each rank takes more samples. If memory holds only `largest` of them at once, it takes several passes, *micro-batches*, whose gradients add up.
#
# All ranks need the **same number** of micro-batches. Otherwise one rank waits in an `all_reduce` for another that is done. The number that the largest share needs is enough: ⌈⌈G/n⌉ / largest⌉ for a global batch G on n ranks. (Losses must then be sums divided by G, because the shares differ.)
#
# ## Your turn: micro_batches
#
# **Optional · 12.3 · difficulty ●○○ · about 10 minutes**
#
# **Goal.** Return the sizes of this rank's micro-batches. The rank's share of the global batch is that of lesson 00. The share is cut into as many micro-batches as the formula above says. Shares differ by at most one, and so do the micro-batches of a rank, with larger ones first. A size may be 0. If the global batch is 0, the list is empty. Ask no other rank.
#
# <details>
# <summary>Hint: one rule, twice</summary>
#
# `divmod(items, parts)` gives the smaller size, and how many parts have one more.
#
# </details>

# %% exercise="micro_batches" role="answer" points=4 required=false difficulty=1
def micro_batches(global_batch: int, largest: int) -> list[int]:
    """The sizes of this rank's micro-batches, none above largest; as many on every rank.

    Computed without a call to other ranks.

    Over all ranks they add up to global_batch. With 10 and 4 on two ranks: [3, 2] on each.
    """
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    count = math.ceil(math.ceil(global_batch / n) / largest)
    if count == 0:
        return []
    size, rest = divmod(global_batch, n)
    small, more = divmod(size + (rank < rest), count)
    return [small + (k < more) for k in range(count)]
    ### END SOLUTION

# %% exercise="micro_batches" role="try"
for world in (4, 3, 2):
    for sizes in ((64, 12), (37, 3)):
        print(f"{world} ranks, {sizes}:", *run(micro_batches, *sizes, world_size=world).results)

# %% exercise="micro_batches" role="check"
check(micro_batches)

# %% [markdown] id="12-6132e9"
# ## Go on without a restart
#
# A restart ends healthy ranks, too. To stay and go on, they need three things:
#
# * **Notice.** When a process dies, the system closes its connections, and a rank that waits for it knows at once. A lost machine closes nothing. Then a rank notices only by a keepalive or a timeout (gloo's is 30 minutes). A rank that waits for a living one has only the timeout. So a rank that notices a death *hangs up*: `destroy_process_group` closes its connections, and the rank that waits for it notices, too.
# * **Who is left.** By waiting, nobody can tell a dead rank from a slow one. Here the process that started the ranks knows, because the system tells it of deaths.
# * **A vote on the half-done step.** A collective may end on one rank and fail on another. Each rank says how many steps it has made. The highest number counts, and a rank that has made that many sends the others its weights (and its optimizer's state).
#
# Below, rank 0 gets the sum, which then goes along the chain 0 → 1 → 2 → 3. Rank 1 kills itself in step 3, before it passes the sum on. So rank 0 has made that step, and ranks 2 and 3 have not.

# %% id="12-81ab46"
import json, multiprocessing
from multiprocessing.connection import wait

def gradient(member, step):
    return torch.randn(2, generator=torch.Generator().manual_seed(100 * step + member))

def mean(grad, dies):
    rank, n = dist.get_rank(), dist.get_world_size()
    dist.reduce(grad, 0)
    if rank > 0:
        dist.recv(grad, rank - 1)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank < n - 1:
        dist.send(grad, rank + 1)
    return grad / n

def meet(store, members, me):
    own = dist.PrefixStore(f"members {members}", store)  # a dead rank's address is not in it
    dist.init_process_group("gloo", store=own, rank=members.index(me), world_size=len(members))

# %% id="12-b41184"
def member(me, path):
    store, members, step, weights = dist.FileStore(path), [0, 1, 2, 3], 0, torch.zeros(2)
    meet(store, members, me)
    while step < 6:
        try:
            weights -= mean(gradient(me, step), dies=(me, step) == (1, 3))
            step += 1
            continue
        except RuntimeError:
            noticed = time.monotonic()
        dist.destroy_process_group()  # hangs up
        members = json.loads(store.get("who is left"))  # waits until it is known
        meet(store, members, me)
        votes = [None] * len(members)
        dist.all_gather_object(votes, step)
        step = max(votes)
        dist.broadcast(weights, votes.index(step))
    store.set(f"end of {me}", json.dumps([weights.tolist(), votes, noticed]))
    dist.barrier()  # who leaves early cuts off what others have yet to read

# %% id="12-dc82a8"
def start(path):
    store, fork = dist.FileStore(path), multiprocessing.get_context("fork")
    processes = [fork.Process(target=member, args=(me, path)) for me in range(4)]
    for process in processes:
        process.start()
    ended, died = wait([process.sentinel for process in processes]), time.monotonic()
    left = [me for me in range(4) if processes[me].sentinel not in ended]
    store.set("who is left", json.dumps(left))
    for process in processes:
        process.join()
    return died, {me: json.loads(store.get(f"end of {me}")) for me in left}

died, ends = run(start, f"{files.name}/members", world_size=1, init=False, record=False).results[0]
alone = torch.zeros(2)  # one process, in which step 3 counts with all four gradients
for step in range(6):
    members = range(4) if step < 4 else ends
    alone -= sum(gradient(me, step) for me in members) / len(members)
for me, (weights, votes, noticed) in ends.items():
    print(f"rank {me} noticed {abs(noticed - died):.2f} s from the death, votes {votes}")
    assert votes == [4, 3, 3] and weights == ends[0][0] and ends[2][2] < ends[3][2]
    assert torch.allclose(torch.tensor(weights), alone)
files.cleanup()

# %% [markdown] id="12-64f646"
# ## In practice
#
# * **Signals.** A cluster that takes a machine back warns first: Slurm can send SIGUSR1 some time before it kills, Kubernetes sends SIGTERM. Let a handler set a flag, and save after the step: within a step the state is half changed. torchrun's agent passes on what `--signals-to-handle` names (name SIGUSR1 there), and kills its ranks 30 seconds later, or after `--shutdown-timeout`.
# * **Queues.** With `#SBATCH --requeue` Slurm may queue a job again after a node failure or a preemption, but not after an error. After an error the script has to call `scontrol requeue`. A Kubernetes Job starts failed pods again up to its `backoffLimit`. Both start the same command, so a script looks for its checkpoint at *every* start.
# * **One file for all.** The path lies on a disk that every machine sees. Keep the last few: a loss that became NaN is saved, too.
# * **Orphans.** If the agent is killed, its ranks may train on, and write into their successors' file. train.py asks Linux to end them together.
#
# ## Roads not taken
#
# * **Ranks that reconfigure**: `init_process_group(enable_reconfigure=True)`, in torch 2.15, for gloo.
# * **Generators that need no saving**: train.py seeds by epoch and rank before `iter(loader)`, which seeds workers as well.
#
# ## What you can do now
#
# * ☑ list what a checkpoint has to hold, and see what each missing part does;
# * ☑ save so that no death loses the last state;
# * ☑ explain why DDP's last digits change after a restart, and what helps;
# * ☑ kill a job twice under torchrun and get the same losses;
# * ☑ load on two ranks what four have saved;
# * ☑ name three rules for a save in the background;
# * ☑ let the ranks that are left go on, and say who decides about a half-done step;
# * ☑ compute how often to save;
# * ☑ keep the global batch when the world changes.
#
# **Next:** [lesson 13](13_sharding.ipynb) divides a model that no rank could hold.
#
# ## Sources
#
# * J. W. Young, *A first order approximation to the optimum checkpoint interval*, Communications of the ACM, 1974, [doi:10.1145/361147.361115](https://doi.org/10.1145/361147.361115) · J. T. Daly, *A higher order estimate of the optimum checkpoint interval for restart dumps*, Future Generation Computer Systems, 2006, [doi:10.1016/j.future.2004.11.016](https://doi.org/10.1016/j.future.2004.11.016)
# * Llama Team, *The Llama 3 Herd of Models*, 2024, [arXiv:2407.21783](https://arxiv.org/abs/2407.21783) (interruptions)
# * PyTorch 2.15: [torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html) · [Distributed Checkpoint](https://docs.pytorch.org/docs/stable/distributed.checkpoint.html) · [torch.save](https://docs.pytorch.org/docs/stable/generated/torch.save.html)
# * Mistakes and questions of others: [pytorch#135712](https://github.com/pytorch/pytorch/issues/135712) (restarts and the shared store), [pytorch#108158](https://github.com/pytorch/pytorch/issues/108158) (restarts are counted per agent), [transformers#17032](https://github.com/huggingface/transformers/issues/17032) (generators)
