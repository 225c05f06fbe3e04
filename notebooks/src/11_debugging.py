# %% [markdown] id="11-32a11d"
# # Read a hang like a sentence
#
# **Start broken jobs, hear what tools say of them, find where replicas part, and write the test that kills the bug.**
#
# ![Nine wrong all_reduces, and how many of them each of five tests catches: the one that compares the function with itself catches none, the one with an oracle of its own six](../../figures/11_debugging.png)
#
# *Where this goes: five tests of the same function, and how many of nine wrong ones each of them catches.*
#
# | | |
# |---|---|
# | **Do** | start three broken jobs under torchrun, plain and watched; follow an incident on two machines from start to end; watch two jobs go wrong in silence; judge tests by what they catch; find the rank for which the others wait |
# | **Learn** | who can say what about a hang; why a victim is blamed; how replicas part; where a NaN begins; what a test has to look at |
# | **Need** | lessons [05](05_gradient_averaging.ipynb) (bit-equal replicas), [06](06_ddp.ipynb) (DDP, torchrun) and [07](07_gpus.ipynb) (the logs of a job that failed) |
# | **Time** | about 60 minutes with the required exercise, 95 with the two optional ones as well |
#
# ## The problem, small enough for hand calculation
#
# Here are the calls of two ranks, with the number of elements of each tensor:
#
# ```text
# rank 0:  all_reduce(4)  all_reduce(4)  broadcast(8)  …
# rank 1:  all_reduce(4)  broadcast(8)   …
# ```
#
# The k-th collective of one rank meets the k-th collective of the other. So the second calls do not fit, and one look at both lists shows it. That comparison is our *reference*, and all that a debugger of hangs has to do. The difficulty is to have both lists, with the line of each call, while the job stands still.

# %% id="11-1fe1f5"
import io
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from hashlib import sha256
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import _dump_fr_trace
from torch.nn.parallel import DistributedDataParallel

from course_lib import RankFailed, check, compute, draw, expect, run, simulate
from course_exercises.drivers.suspect import RIGHT, WRONG, Suspect
from course_tools.watch.watch_command import main

# %% id="11-20c069"
said = [["all_reduce(4)", "all_reduce(4)", "broadcast(8)"], ["all_reduce(4)", "broadcast(8)"]]
pairs = enumerate(zip(*said, strict=False))
number, calls = next((k, pair) for k, pair in pairs if len({*pair}) > 1)
print(f"call {number + 1} does not fit: {' against '.join(calls)}")

# %% [markdown] id="11-e0cc59"
# ## Three jobs that stand still
#
# Three scripts follow, each with a mistake that people make. Nothing in them raises, and each rank is right by itself. So one rank waits for another. With gloo it waits for 30 minutes, unless somebody has set a timeout.
#
# All three begin with the same lines, `begin`.
#
# * **evaluation.py** evaluates on rank 0 alone, through the DDP wrapper. Before each forward pass the wrapper broadcasts the buffers of BatchNorm from rank 0, so rank 0 makes a call that rank 1 does not make.
# * **batches.py** adds up its gradients by hand, and rank 1 has one batch fewer than rank 0. After its last batch it goes on to the sum of the results.
# * **loader.py** has a loader that never delivers on rank 1: a queue that nobody fills.
#
# `start` writes a script into a folder, and starts it with torchrun on two ranks. `listen` reads what a job says from step 1 on, and ends it when it has been silent for too long. The last of these cells starts evaluation.py and batches.py side by side under plain torchrun. It gives up on evaluation.py after three seconds without a word. Guess: what does each say?

# %% id="11-0cc894"
folder = tempfile.TemporaryDirectory()
begin = '''import queue, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, x, nn = dist.get_rank(), torch.ones(8, 4), torch.nn
'''
scripts = {}
scripts["evaluation"] = begin + '''
model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
for step in range(3):
    model(x).sum().backward()
    if rank == 0: print("step", step, flush=True)
    if step == 1 and rank == 0:
        model(x)
'''

# %% id="11-639a1e"
scripts["batches"] = begin + '''
model = nn.Linear(4, 4)
for step in range(3 - rank):
    model(x).sum().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    if rank == 0: print("step", step, flush=True)
dist.all_reduce(torch.ones(1))
'''
scripts["loader"] = begin + '''
for step in range(3):
    dist.all_reduce(torch.ones(4))
    if rank == 0: print("step", step, flush=True)
    if step == 1 and rank == 1:
        queue.Queue().get()
'''

# %% id="11-8b266c"
def start(name, *watch, where=("--standalone", "--nproc-per-node=2"), **variables):
    Path(folder.name, f"{name}.py").write_text(scripts[name])
    quiet = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TMPDIR": folder.name}
    words = ["-m", "torch.distributed.run", *where, *watch]
    log = Path(folder.name, f"{name}-{len(os.listdir(folder.name))}.log")
    with log.open("w") as said:
        return log, subprocess.Popen([sys.executable, *words, f"{name}.py"], cwd=folder.name,
                                     env=os.environ | quiet | variables, stdout=said, stderr=said)

def listen(started, patience, word=None):
    """What a job says after step 1, and after how many seconds; None if it says nothing."""
    log, job = started
    text, began, first, heard, ended = "", None, None, time.monotonic(), False
    while not ended and time.monotonic() - heard < (patience if began else 90):
        time.sleep(0.05)
        ended = job.poll() is not None or (word and "\n\n" in text.partition(word)[2])
        if (now := log.read_text()) != text:
            text, heard = now, time.monotonic()
        began = began or (heard if "step 1" in text else None)
        after = text.partition("step 1\n")[2]
        first = first or (time.monotonic() - began if began and after.strip() else None)
    job.terminate()
    job.wait()
    return after, first

# %% id="11-858dcf"
plain = {"evaluation": start("evaluation"), "batches": start("batches")}
with ThreadPoolExecutor() as threads:
    heard = dict(zip(plain, threads.map(listen, plain.values(), [3, 60]), strict=True))
for name, (after, seconds) in heard.items():
    print(f"{name}:", "nothing" if seconds is None else re.search("Received data.*", after)[0])
assert [seconds is None for _, seconds in heard.values()] == [True, False]

# %% [markdown] id="11-a5a856"
# evaluation.py says nothing, and would say nothing for 30 minutes; loader.py would do the same. Then the timeout of some rank is over: that rank raises, and torchrun ends the others. The tracebacks are those of *victims*, ranks that wait for the one at fault. In evaluation.py both ranks wait, and both name the line of the *training* step. In loader.py rank 0 complains, and the rank that waits for its queue says nothing. batches.py dies in C++, and the rank that says so has no Python frame to show.
#
# ## The same jobs, watched
#
# `python -m course_lib.watch` runs a script unchanged and writes down every call of every rank. A reader beside the job compares the lists, as the reference above does. When the calls do not fit, or can never end, the reader says so on stderr, with the lines. `--end` ends a job that can never go on. Without it the job stands, and you can look at it. Where nothing is *wrong* with the calls, the reader cannot know whether a rank is slow or lost. So when some rank has waited for 30 seconds and nobody has called anything, it says once who waits, and where the others are. `COURSE_LIB_QUIET` sets these seconds; here they are two.
#
# You type `torchrun … -m course_lib.watch train.py`, and after it your script's own arguments.

# %% id="11-24db7a"
def report(after):
    """The block of watch, without the line that names a folder."""
    block = after[after.index("course_lib.watch:"):].partition("\n\n")[0]
    return "\n".join(line for line in block.splitlines() if not line.startswith("Its calls"))

def read_logs(folder):
    """What ``python -m course_lib.watch --read FOLDER`` prints, without a process of its own."""
    with redirect_stdout(io.StringIO()) as said:
        main(["--read", str(folder)])
    return said.getvalue()

watch, quiet = ("-m", "course_lib.watch"), {"COURSE_LIB_QUIET": "2"}
watched = {name: start(name, *watch, *["--end"] * (name != "loader"), **quiet)
           for name in scripts}
with ThreadPoolExecutor() as threads:
    reports = threads.map(lambda job: listen(job, 30, "course_lib.watch:"), watched.values())
    told = dict(zip(watched, reports, strict=True))
for after, _ in told.values():
    print(f"{report(after)}\n")
assert "evaluation.py, line" in told["evaluation"][0]
assert "elements" in told["batches"][0] and "rank 1 is at" in told["loader"][0]
timeout = dist.constants.default_pg_timeout.total_seconds()  # 30 minutes
draw.bars({"torchrun, when its timeout is over": timeout, "watch": told["evaluation"][1]},
          unit="s", caption="Seconds from the last step of evaluation.py to the first word about "
          "it: gloo's timeout beside what was measured above.")

# %% [markdown] id="11-5f1d07"
# Read the report on evaluation.py slowly. It names the ranks, both calls and both lines. Then it names the place where the ranks had parted *before*: the call of the wrapper on rank 0. It does not blame one of the two, because the calls alone do not tell which rank is wrong. (The two calls that do not fit come from one line of the script, one in forward, the other in backward. The calls that are counted before them are DDP's own.) In batches.py the lengths of the tensors differ because the *lines* do: rank 0 sums the gradients of a batch that rank 1 does not have. So compare the lines first. Where the lines differ, a call is missing on one rank, and the difference of the tensors follows from that.
#
# | | batches.py: calls that do not fit | loader.py | replicas that part (see below) | needs |
# |---|---|---|---|---|
# | torchrun | a C++ abort, and the traceback of the other rank | nothing for 30 minutes | nothing, exit code 0 | |
# | `TORCH_DISTRIBUTED_DEBUG=DETAIL` | with DDP each rank dies of SIGSEGV as the model is wrapped | nothing | the same SIGSEGV | a variable |
# | the same, in a job without DDP | both calls, each rank's line in its own traceback; where two *ops* differ, it gives the other rank's op a wrong name | nothing | nothing: the calls are right | a variable |
# | the debug server of torch 2.15 | gone with the job | both stacks, in 0.3 s, when somebody asks | stacks of a job that is fine | a line in the script, jinja2, aiohttp |
# | Flight Recorder, `torchfrtrace` | nothing was dumped | on gloo it ends with a KeyError | nothing: all calls have met | a folder for dumps |
# | `py-spy dump` | nothing to attach to | both stacks, in 0.1 s, when somebody asks | stacks of a job that is fine | the right to trace |
# | `course_lib.watch` | ranks, calls, both lines, in 0.5 s | who waits, and the other's line, after its quiet seconds | nothing: the calls are right | to be started with it |
#
# (Measured with torch 2.15 and gloo, two ranks on a CPU.)
#
# ## An incident on two machines, from start to end
#
# incident.py trains on two machines, with a rank on each. Somebody has protected it from bad samples: a rank whose loss is not finite leaves out backward and the all_reduce of gradients. At step 1 only rank 1 has such a loss. It goes on to the all_reduce of losses, while rank 0 sums gradients.
#
# Your machine plays both. There is a torchrun for each, as there would be on a cluster, and the two meet at one address. `--keep` names a folder that both machines see. With it, the report on either machine speaks of all ranks; without it, each machine knows its own. The machine that sees the mistake first reports it, and ends the job. Afterwards `--read FOLDER` compares the logs again, on any machine that sees the folder. The first cell below prints the report of `--read`.
#
# ```text
# torchrun --nnodes=2 --node-rank=0 --nproc-per-node=1 --master-addr=… --master-port=… \
#     -m course_lib.watch --end --keep /shared/logs incident.py  # the other: --node-rank=1
# ```
#
# If nobody has started the job under `watch`, torch's own **Flight Recorder** has the last calls of each rank, and `--read` reads its dumps, too. In the two cells after that, three gloo ranks write their dumps while rank 2 has not made its second call. NCCL writes them by itself, when a call has timed out.

# %% id="11-f85ad8"
scripts["incident"] = begin + '''
model = nn.Linear(4, 1)
for step in range(3):
    sample = torch.full((8, 4), -1.0 if (rank, step) == (1, 1) else 2.0)
    loss = model(sample.log()).square().mean()
    if loss.isfinite():
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
    dist.all_reduce(mean := loss.detach())
    if rank == 0: print("step", step, mean.isfinite().item(), flush=True)
'''
kept = Path(folder.name, "logs")
with socket.create_server(("127.0.0.1", 0)) as free:
    meet = "--master-addr=127.0.0.1", f"--master-port={free.getsockname()[1]}"
both = [start("incident", *watch, "--end", f"--keep={kept}",
              where=["--nnodes=2", f"--node-rank={node}", "--nproc-per-node=1", *meet])
        for node in range(2)]
assert all(job.wait(timeout=90) for _, job in both), "a job that is ended has failed"
print(said := read_logs(kept))
assert "rank 1" in said and "incident.py, line 14" in said

# %% id="11-9b641d"
def leaves_one_out(folder):
    rank, x, late = dist.get_rank(), torch.ones(4), dist.get_rank() == 2
    dist.all_reduce(x)
    work = late or dist.all_reduce(x, async_op=True)
    Path(folder, f"fr_{rank}").write_bytes(_dump_fr_trace(True, True, False))
    while len(os.listdir(folder)) < 3:
        time.sleep(0.01)
    (dist.all_reduce(x, async_op=True) if late else work).wait()

# %% id="11-c8f2ba"
dumps = Path(folder.name, "dumps")
dumps.mkdir()
run(leaves_one_out, str(dumps), world_size=3, record=False)
print(said := read_logs(dumps))
folder.cleanup()
assert "keeps rank 2 from making that call" in said

# %% [markdown] id="11-13d5da"
# The report on the incident leaves one question: why was *rank 1's loss* not finite? To cure the hang, decide together: all_reduce first whether the loss is finite, and let all ranks skip the step, or none.
#
# ## A checklist for the night
#
# A job on many machines that stands still is not always a wrong program. Cables, GPUs, disks and file systems stop ranks as well, and then no line is to blame. Ask in this order, before the job is killed.
#
# | ask | how | it tells | source |
# |---|---|---|---|
# | Is there a NaN? | `TORCH_DIST_NAN_CHECK=1`, any backend; NCCL's own: `TORCH_NCCL_NAN_CHECK=1` | the rank that brings it raises "NaN found in input tensor." at its line, before the sum | `distributed_c10d.py`; `NanCheck.hpp` |
# | When does it give up? | `init_process_group(timeout=…)`; `TORCH_NCCL_ASYNC_ERROR_HANDLING` (3: the watchdog ends the process) | which call has timed out, on which rank | [1] |
# | And if the watchdog itself hangs? | `TORCH_NCCL_ENABLE_MONITORING=1`, `TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC` | nothing, but the job ends | [1] |
# | What did each rank call last? | `TORCH_FR_DUMP_TEMP_FILE=/shared/dumps/fr_`, `TORCH_NCCL_DUMP_ON_TIMEOUT=1`, `TORCH_FR_BUFFER_SIZE` (2,000 calls); then `python -m course_lib.watch --read /shared/dumps`, or `torchfrtrace` | which rank lacks which call | [1], [2] |
# | Which communicator lags, now? | `ncclras -v` on a node of the job: it asks NCCL's threads at port 28028 of that node (`NCCL_RAS_ADDR`), since NCCL 2.24 | ranks that are silent, or some calls behind | [3] |
# | Where does Python stand? | `srun --jobid=… --overlap --ntasks-per-node=1 bash -c 'for p in $(pgrep -f train.py); do py-spy dump --pid $p; done'` | the stack of each process, those of the loader's workers among them; `--native` shows the calls in C++, too | [4] |
# | Is it the machine? | `dmesg -T`, lines with "Xid" (48, 95: memory; 74: NVLink; 79: the GPU is gone), `nvidia-smi -q -d ECC`, `nvidia-smi nvlink -e`, `dcgmi diag -r 2` | the node to take out | [5], [6] |
# | Which pair of nodes? | a preflight before the job: a short all_reduce on each pair of nodes, timed (`all_reduce_perf` of nccl-tests) | the node in all slow pairs | [7] |
# | How to go on without it? | `sbatch --exclude=node17 …`; whoever runs the cluster drains it (`scontrol update`, `kubectl cordon`) | | [8] |
#
# The first row was tried here, on gloo: rank 2 of 3 raised it at its all_reduce, and the two others lost their connection to it. **We have no GPU here.** What is said of NCCL is from the sources below. `--read` follows the format of NCCL's dumps as torch's source writes it, and has seen no dump of a real job.
#
# ## Wrong in silence: replicas that part
#
# The worst jobs do not hang. Here every call fits, the loss falls, and the model is not what you think it is. Nobody who looks at calls can see it, `watch` included.
#
# Two mistakes do this. The first: a parameter that is made **after** the wrapper is unknown to it, so nobody averages its gradient, and each rank trains its own. The second: ranks that all begin with the same seed draw the same noise for their samples, and with two ranks you train on half of what you think.
#
# **Predict.** Two ranks draw noise for eight samples each, both after `manual_seed(0)`. How many different numbers are among the 16?

# %% id="11-2d0364"
guess = None

# %% id="11-80a5f7"
def train(late, steps=8):
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    wrapped = DistributedDataParallel(model)
    scale = nn.Parameter(torch.ones(4))
    scale = scale if late else model.bias
    sgd, gaps = torch.optim.SGD([*model.parameters(), *[scale] * late], lr=0.1), []
    torch.manual_seed(dist.get_rank())
    for _ in range(steps):
        (wrapped(torch.randn(8, 4)) * scale - 1).square().mean().backward()
        sgd.step()
        sgd.zero_grad()
        both = [torch.empty(4) for _ in range(2)]
        dist.all_gather(both, scale.detach())
        gaps.append((both[0] - both[1]).abs().max().item())
    return gaps

gaps = run(lambda: {"made before": train(False), "made after": train(True)},
           world_size=2).results[0]
assert not any(gaps["made before"]) and min(gaps["made after"]) > 0
draw.lines({f"a parameter {name} the wrapper": (range(1, 9), ys) for name, ys in gaps.items()},
           "step", "largest difference", caption="A parameter on two ranks: equal where DDP "
           "knows it. One that is made after the wrapper differs from the first step on.")

# %% id="11-1da602"
def noisy_samples(seed):
    torch.manual_seed(seed)
    noise = [torch.empty(8) for _ in range(2)]
    dist.all_gather(noise, torch.randn(8))
    return len({*torch.cat(noise).tolist()})

alike = run(lambda: noisy_samples(0), world_size=2).results[0]
apart = run(lambda: noisy_samples(dist.get_rank()), world_size=2).results[0]
print("your guess:", guess, "  recorded:", alike, "  with a seed for each rank:", apart)
assert (alike, apart) == (8, 16)

# %% [markdown] id="11-c827a9"
# The second mistake leaves the replicas equal. It shows only if you compare what the ranks *draw*. The first one is found by comparing what they *have*, tensor by tensor, and for that a digest is enough. A digest is `hashlib.sha256` of a tensor's bytes. It has 32 bytes, and nobody has ever found two inputs with the same digest.
#
# ## Your turn: first_difference
#
# **Optional · 11.2 · difficulty ●●○ · about 20 minutes**
#
# **Goal.** Lesson 05 asked *whether* replicas are the same. Now say *where* they part. `first_difference(model)` goes through `named_parameters()` and then `named_buffers()`, also buffers that are not saved. It returns the name of the first tensor that is not bit-equal to rank 0's on some rank, and the lowest such rank: the same answer everywhere, and None if all agree. **Budget:** each rank gives at most 100 × number of tensors + 256 bytes, in all its calls together. That counts what it hands to the calls, not what it receives.
#
# Names, shapes and dtypes are the same on all ranks. In the sturdy cases there are negative zeros, NaN with other bits, tensors without elements, and bfloat16. A tensor's bits: `t.detach().contiguous().view(-1).view(torch.uint8)`.
#
# <details>
# <summary>Hint: one call or many?</summary>
#
# If a rank leaves the loop as soon as it differs, the others wait for it in the next call. Collect all digests first, exchange them once, and let every rank compare the same list.
#
# </details>

# %% exercise="first_difference" role="answer" points=5 required=false difficulty=2
def first_difference(model: nn.Module) -> tuple[str, int] | None:
    """The first tensor that differs from rank 0's: its name, and the lowest such rank, or None.

    Parameters come first, then buffers. Equal means equal bits. All ranks get the same answer.
    Budget: each rank gives at most 100 × number of tensors + 256 bytes, in all its calls together.
    """
    ### BEGIN SOLUTION
    digests = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        raw = tensor.detach().contiguous().view(-1).view(torch.uint8)
        digests[name] = sha256(raw.numpy().tobytes()).digest()
    by_rank = [None] * dist.get_world_size()
    dist.all_gather_object(by_rank, list(digests.values()))
    for k, name in enumerate(digests):
        for rank, theirs in enumerate(by_rank):
            if theirs[k] != by_rank[0][k]:
                return name, rank
    return None
    ### END SOLUTION

# %% exercise="first_difference" role="try"
def one_weight_differs():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model[1].running_mean[2] += 1e-3 * dist.get_rank()
    return first_difference(model)

print(run(one_weight_differs, world_size=2).results)

# %% exercise="first_difference" role="check"
check(first_difference)

# %% [markdown] id="11-89acd0"
# ## A NaN that is everywhere
#
# A NaN on one rank is a NaN on all of them one all_reduce later. If you look at the loss, or at the gradients after backward, you see it on every rank at once, and can no longer say where it began. So look for it *before* the sum.
#
# Here each of four ranks takes the logarithm of its samples, and one sample of rank 2 is −1. The cell keeps the gradient before and after the sum.

# %% id="11-d63269"
def spreads():
    w = torch.ones(3, requires_grad=True)
    x = torch.tensor([1.0, 2.0, -1.0 if dist.get_rank() == 2 else 3.0])
    (w * x.log()).sum().backward()
    before = w.grad.clone()
    dist.all_reduce(w.grad)
    return {"before all_reduce": [f"{v:.1f}" for v in before],
            "after": [f"{v:.1f}" for v in w.grad]}

spread = run(spreads)
first = [rank for rank, r in enumerate(spread.results) if "nan" in r["before all_reduce"]]
print("a NaN before the sum on rank", first)
assert first == [2] and all("nan" in both["after"] for both in spread.results)
draw.values(spread, caption="Gradients of four ranks: one NaN before the sum, and one on every "
            "rank after it.")

# %% [markdown] id="11-d16417"
# In a job of your own set `TORCH_DIST_NAN_CHECK=1` first: each call then looks at what it is given, and raises on the rank that brings a NaN, at its line. (gloo does it here; NCCL has `TORCH_NCCL_NAN_CHECK=1`.) To look yourself, `p.register_hook(f)` calls `f` with the gradient as it was computed, before DDP's sum. `torch.autograd.set_detect_anomaly(True)` names the operator, and is slow.
#
# ## The test that kills the bug
#
# What no tool finds, a test has to find. But a test can be wrong, too. Ask of it: *which mistakes does it notice?* In nanotron, a framework for training, a layer on four ranks computed three quarters of its input's gradient wrongly, and the layer had a test (nanotron#172, 2024). The test **did not look at that gradient**.
#
# So we judge tests as tests judge code. The next cell names nine wrong all_reduces; their code is in `course_exercises/drivers/suspect.py`. After it come five tests. Each of them makes an input, calls the all_reduce that it is given, and asserts.
#
# **Predict.** Run the next cell, read what it prints, set your guess in it, and run it again. A test hands ones to the all_reduce on every rank, and asserts that every element is n afterwards. How many of the nine does this test let pass?

# %% id="11-9bd783"
print(*WRONG, sep="\n")
guess = None

# %% id="11-84cb1f"
def ones(f):
    x = torch.ones(12)
    f(x)
    assert (x == dist.get_world_size()).all()

def rank_0_alone(f):
    x = torch.arange(7.0) + dist.get_rank()
    f(x)
    assert dist.get_rank() or torch.equal(x, torch.arange(7.0) * 3 + 3)

def all_agree(f):
    x = torch.arange(7.0) * (dist.get_rank() + 1)
    f(x)
    dist.broadcast(of_rank_0 := x.clone(), 0)
    assert torch.equal(x, of_rank_0)

def by_itself(f):
    x = torch.arange(7.0) + dist.get_rank()
    f(expected := x.clone())
    f(x)
    assert torch.equal(x, expected)

# %% id="11-d815ca"
def with_an_oracle(f):
    rank, n = dist.get_rank(), dist.get_world_size()
    everybody = torch.arange(n * (2 * n + 1.0)).reshape(n, 2 * n + 1)
    f(mine := everybody[rank].clone())
    assert torch.equal(mine, everybody.sum(0))

def catches(test, how):
    try:
        simulate(lambda: Suspect(how, dist.get_rank()).use(test), world_size=3)
    except RankFailed as failure:
        return failure.kind == "Caught"  # an AssertionError, and no other one
    return False

tests = [ones, rank_0_alone, all_agree, by_itself, with_an_oracle]
matrix = {test.__name__: [catches(test, how) for how in WRONG] for test in tests}
print("columns:", *matrix)
for k, how in enumerate(WRONG):
    print(*("●" if row[k] else "·" for row in matrix.values()), "", how)
past = 9 - sum(matrix["ones"])
print("your guess:", guess, "  the test of ones lets pass:", past)
assert [sum(row) for row in matrix.values()] == [4, 5, 4, 0, 6]

# %% id="11-029ddd"
draw.bars({name.replace("_", " "): sum(row) for name, row in matrix.items()}, unit="caught",
          exact=True, caption="How many of nine wrong all_reduces a test catches. One compares the "
          "function with itself, and catches none.")

# %% [markdown] id="11-5d36d2"
# In the table above, ● is a wrong function that the column's test catches, and · one that gets past it. The last test makes *everybody's* input on every rank, and adds it up: its **oracle** has nothing in common with what it tests. It looks at the whole tensor, on every rank, and the length of that tensor is not divisible by n. Three wrong functions get past it all the same. Its oracle is right, and its *input* does not show them.
#
# ## Your turn: test_all_reduce
#
# **Required · 11.1 · difficulty ●●○ · about 25 minutes**
#
# **Goal.** Write `test_all_reduce(all_reduce)`. Every rank calls it with somebody's `all_reduce(x)`, which has to leave in `x`, in place, the sum over all ranks, whatever the dtype and the layout (a column of a matrix, too), and to change nothing else. Your test makes its own inputs. If the function is wrong, your test raises AssertionError on some rank. If it is right, your test returns. Nobody looks at what it returns.
#
# *Core* plays the nine wrong ones on two ranks and on three, and five right ones on three. One of the right ones adds from the last rank to the first, so its sums of random floats differ in their last bits. *Sturdy* plays the right ones on one rank alone, where a test may return at once, and on four. If one rank raises while the others wait in a collective, that counts as a catch and not as a deadlock.
#
# <details>
# <summary>Hint: with what do you compare?</summary>
#
# Choose inputs whose sum you know. If rank r has k·(r + 1) at place k, the sum is k·n(n + 1)/2. Then go through the nine names above, and ask of each: in which of my inputs would I see it? Three need more than one tensor of small floats, and the table says which.
#
# </details>

# %% exercise="test_all_reduce" role="answer" points=10 required=true difficulty=2
def test_all_reduce(all_reduce: Callable[[Tensor], None]) -> None:
    """Raise AssertionError on some rank if ``all_reduce`` is wrong; come through if it is right.

    Every rank calls it. ``all_reduce(x)`` has to write the sum of all ranks' tensors into x, in
    place, whatever its dtype and layout, and to leave everything else as it was.
    """
    ### BEGIN SOLUTION
    rank, n = dist.get_rank(), dist.get_world_size()
    for call in range(2):
        for dtype in (torch.float32, torch.int64):
            far = 2**40 if dtype == torch.int64 else 0
            everybody = torch.arange(n * (4 * n + 2)).reshape(n, 2 * n + 1, 2) + far + call
            everybody = everybody.to(dtype)
            mine, expected = everybody[rank].clone(), everybody[rank].clone()
            expected[:, 0] = everybody[:, :, 0].sum(0)
            all_reduce(mine[:, 0])
            assert torch.equal(mine, expected), f"rank {rank} has {mine.tolist()}"
    ### END SOLUTION

# %% exercise="test_all_reduce" role="try"
caught, refused = (sum(catches(test_all_reduce, how) for how in kind) for kind in (WRONG, RIGHT))
print(f"catches {caught} of 9 wrong ones, refuses {refused} of 5 right ones")

# %% exercise="test_all_reduce" role="check"
check(test_all_reduce)

# %% [markdown] id="11-5ea7d1"
# ## How long do the others wait for a rank?
#
# A job that does not hang can still stand still for most of its time, because each collective waits for its last rank. A trace has the time at which each rank *entered* each call. From these times you can charge the last rank with the seconds that all the others have waited.
#
# **Optional · 11.3 seconds_lost · difficulty ●○○ · about 15 minutes**
#
# **Goal.** `calls[k][r]` is when rank r entered the k-th collective. Return for each rank the seconds that all the others together have waited because of it. Times may be negative, as on any clock. Only the last to come is waited for: each other rank waits from its own entry on. If several come last together, the lowest of them counts. For no calls, return `[]`.
#
# <details>
# <summary>Hint: three ranks by hand</summary>
#
# They enter at 0, 1 and 4 seconds. Rank 0 has waited 4 seconds and rank 1 three: rank 2 has cost 7. Rank 1 came after rank 0, but that costs nothing: all still waited for rank 2.
#
# </details>

# %% exercise="seconds_lost" role="answer" points=5 required=false difficulty=1
def seconds_lost(calls: list[list[float]]) -> list[float]:
    """Seconds that the others have waited for each rank, by rank: [[0, 1, 4]] gives [0, 0, 7].

    ``calls[k][r]`` is when rank r entered the k-th collective. Only the last to enter is waited
    for; of several that enter last together, the lowest rank. It sends nothing. No calls: [].
    """
    ### BEGIN SOLUTION
    lost = [0.0] * len(calls[0]) if calls else []
    for entered in calls:
        last = max(entered)
        lost[entered.index(last)] += sum(last - mine for mine in entered)
    return lost
    ### END SOLUTION

# %% exercise="seconds_lost" role="try"
def steps():
    for late in (2, 0, 2):
        compute(3e-3 if dist.get_rank() == late else 1e-3)
        dist.all_reduce(torch.ones(1))

job = simulate(steps, world_size=4)
entered = zip(*([e.issued for e in job.trace.of(rank)] for rank in range(4)), strict=True)
print([f"{1e3 * s:.0f} ms" for s in seconds_lost([list(times) for times in entered])])
draw.timeline(job, caption="Four ranks, simulated: rank 2 comes last twice and rank 0 once, and "
              "the others wait each time, hatched.")

# %% exercise="seconds_lost" role="check"
check(seconds_lost)

# %% [markdown] id="11-414984"
# ## Break it: an error on one rank
#
# Rank 1 misspells a key. When it raises, the others stand in an all_reduce, and lose the connection to it. Under plain torchrun three ranks leave three tracebacks, and two of them are those of victims. To find the cause, compare *when* and *of what* each rank died. A rank that has lost its peer is never the cause if another rank has raised something else.

# %% id="11-b7808b"
def misspelt():
    batch = {"pixels": torch.ones(4)}
    dist.all_reduce(batch["pixel" if dist.get_rank() == 1 else "pixels"])

with expect(RankFailed) as caught:
    run(misspelt, world_size=3)
assert caught.error.rank == 1 and caught.error.kind == "KeyError"

# %% [markdown] id="11-f2612c"
# ## In practice
#
# * **Before the job**: start it with `watch --keep FOLDER`, in a folder that all machines share. Set a `timeout=` that you are ready to wait, and on NCCL set `TORCH_FR_DUMP_TEMP_FILE` (lesson 07).
# * **Settings** that torch reads as it is imported (`TORCH_DISTRIBUTED_DEBUG`) have to be set outside the script: `watch` imports torch before the script's first line.
# * **On NCCL** calls are queued and return at once, so no rank waits in Python. `watch` reports calls that do not fit. After the job has ended, `--read FOLDER` says which call was missing (the folder of `--keep`).
# * **Shrink the job**, if the program is at fault. A wrong program that hangs on 512 ranks nearly always hangs on two. Play its function with `run` or `simulate`: the same sentences come in two seconds. A fault of cables, GPUs, disks or stragglers does not shrink: for those take the checklist above, on all 512 ranks.
# * **Compare replicas** every thousand steps: a digest reads each tensor once, and only its few bytes travel.
# * **Test what you would not look at**: the gradient of the input, the second call, the length that does not divide, the last rank.
#
# ## Roads not taken
#
# * **Replay**: record what every rank received, and run one rank alone in a debugger, as tools for MPI do.
# * **A debugger in each rank**: `torch.distributed.breakpoint()` stops one rank with pdb while the others wait.
#
# ## What you can do now
#
# * ☑ say what torchrun, DETAIL, Flight Recorder, py-spy and `watch` can know of a hang, and what they cannot;
# * ☑ start any job under `watch`, also on several machines, and read its report while it stands or afterwards;
# * ☑ tell the cause from its victims;
# * ☑ find where replicas part, and the rank on which a NaN began;
# * ☑ write a test, and say which mistakes it would notice;
# * ☑ name the rank for which the others wait.
#
# **Next:** [lesson 12](12_recovery.ipynb) kills jobs, and lets them go on with the same numbers. Before this came [lesson 10](10_mini_ddp.ipynb), DistributedDataParallel by hand.
#
# ## Sources
#
# * PyTorch 2.15: [torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html) · [Distributed communication](https://docs.pytorch.org/docs/stable/distributed.html) (timeouts, `TORCH_DISTRIBUTED_DEBUG`, `breakpoint`) · [Flight Recorder](https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html) · [DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html) (buffers; parameters after the wrapper)
# * The checklist: [1] [ProcessGroupNCCL's variables](https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html), and `ProcessGroupNCCL.hpp` of torch 2.15 · [2] `FlightRecorder.hpp`, and the tutorial above · [3] NVIDIA, [NCCL RAS](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html) · [4] [py-spy](https://github.com/benfred/py-spy) · [5] NVIDIA, [Xid errors](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) · [6] NVIDIA, [DCGM diagnostics](https://docs.nvidia.com/datacenter/dcgm/latest/reference/diagnostics/errors.html) · [7] [nccl-tests](https://github.com/NVIDIA/nccl-tests) · [8] Slurm, [sbatch](https://slurm.schedmd.com/sbatch.html)
# * Mistakes of others: [nanotron#172](https://github.com/huggingface/nanotron/pull/172), 2024 (a gradient that the test did not look at) · [pytorch#122694](https://github.com/pytorch/pytorch/issues/122694) (when one rank times out, the stack of the one that hung is lost)
