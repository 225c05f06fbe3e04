# %% [markdown] id="00-05c415"
# # Say hello from many processes
#
# **One function runs in many processes, and each of them knows its number.**
#
# ![Two training steps of four ranks, as recorded: each computes alone, then waits in all_reduce for the others](../../figures/00_hello_ranks.png)
#
# *Where this goes: a few cells from here, four processes train one model, and a timeline shows when each of them computes, communicates and waits.*
#
# | | |
# |---|---|
# | **Do** | start functions on several processes from a cell, divide work among them, let the processes find one another, break a job and find out why it broke |
# | **Learn** | rank, local rank, world size; what is not shared; which backend runs where; what the handshake does; what starting costs |
# | **Need** | PyTorch on one device: you have trained a model before. No GPU, no cluster, no experience with distributed programs |
# | **Time** | about 55 minutes with the required exercise; there are no optional ones |

# %% [markdown] id="00-385caf"
# ## Where you are going
#
# Before any explanation, here is a whole distributed training job. The model learns from 1,442 real handwritten digits, 8 × 8 pixels each, and is tested on 355 more. Read `train` as you would read any training loop. Only two places are unusual:
#
# * `mine` is this process's part of the batch: every `world_size`-th image, starting at index `rank`. (`rank` is the process's number, and `world_size` counts the processes.)
# * After `backward()`, each gradient goes through `dist.all_reduce`, which adds up the gradients of all processes and gives every process the sum. Divided by the number of processes, the sum is the average.
#
# `span` names a stretch of time for a picture further down. `run(train, world_size=4)` calls the function in four new processes, the *ranks*.

# %% id="00-77155e"
import torch
import torch.distributed as dist
from torch import nn

from course_lib import RankFailed, check, draw, expect, load_digits, run, span

images, labels = load_digits().tensors
test_images, test_labels = load_digits(train=False).tensors

# %% id="00-318918"
def train(steps=60, batch_size=128):
    torch.manual_seed(1)  # the same first weights and the same batches on every rank
    model = nn.Sequential(
        nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    losses = []
    for _ in range(steps):
        batch = torch.randint(len(images), (batch_size,))
        mine = batch[rank::world_size]
        with span("compute"):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[mine]), labels[mine])
            loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world_size
        optimizer.step()
        losses.append(loss.item())
    accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    return losses, accuracy

# %% [markdown] id="00-1543c8"
# Now run the same job on one, two and four ranks. Each call returns a `Run`, whose `results` hold what the function returned, one entry per rank. Every rank must report the same accuracy to the last digit: all ranks began with equal weights and applied equal averages, so their weights are still equal. The cell asserts this, and also that the model recognises at least 97% of the test digits each time.
#
# Equal accuracies could be luck; equal *curves* could not. At each step the cell takes the mean of the four ranks' losses, and these points lie on the line of the single process. The tiny differences are rounding: four partial sums are rounded differently from one long sum. The cell takes some seconds, and prints a line after each run.

# %% id="00-bdac7f"
assert (len(images), len(test_images)) == (1442, 355)
runs, curve = {}, {}
for n in (1, 2, 4):
    runs[n] = run(train, world_size=n)
    losses, accuracies = zip(*runs[n].results, strict=True)  # one entry per rank
    assert min(accuracies) == max(accuracies) >= 0.97
    curve[n] = torch.tensor(losses).mean(0)  # one number per step: the mean over the ranks
    apart = (curve[n] - curve[1]).abs().max()
    assert apart < 1e-3
    print(f"ranks: {n}   accuracy: ~{100 * accuracies[0]:.1f}%   curve differs by: ~{apart:.0e}")
draw.lines(
    {"four ranks": (range(60), curve[4]), "one process": (range(60), curve[1])},
    xlabel="training step", ylabel="loss", formulas=["one process"],
    caption="Four ranks, each with a quarter of the batch, follow the curve of one process "
    "that has all of it.",
)

# %% [markdown] id="00-9b87ca"
# `run` also records every `torch.distributed` call with its times. The timeline shows two consecutive steps, the pair that took the least time. On a busy machine, other steps take longer. Each rank computes, and then makes four `all_reduce` calls, one for each parameter tensor of the model. No rank can leave such a call before every rank has entered it. A vertical line marks the moment when the last rank arrives. Hatching marks the time that the earlier ones spent waiting for it.
#
# Do not look for a speed-up here. The model is so small that communicating takes longer than computing. *When* more ranks pay off is a question for later lessons.

# %% id="00-dc53f1"
steps = [box.start for box in runs[4].trace.spans if box.rank == 0]  # one per step, 60 in all
quickest = min(range(58), key=lambda i: steps[i + 2] - steps[i])
draw.timeline(runs[4], between=(steps[quickest], steps[quickest + 2]),
              caption="Two training steps: every rank computes alone (yellow), then all ranks meet "
              "in four all_reduce calls (green). The width of a box is its time, not its bytes.")

# %% [markdown] id="00-4e72aa"
# **Predict.** The model has 64·9 + 64 + 1024·10 + 10 = 10,890 parameters, all float32. How many bytes does one rank pass to `all_reduce` in one training step? Put a number in place of `None`.

# %% id="00-49f0f8"
guess = None

# %% id="00-5cb739"
recorded = sum(event.nbytes for event in runs[4].trace.of(0)) // 60
print(f"your guess: {guess}   recorded: {recorded:,} bytes per step")
assert recorded == 4 * (64 * 9 + 64 + 1024 * 10 + 10) == 4 * 10_890 == 43_560

# %% [markdown] id="00-0543d7"
# The gradient is as large as the model. Its size is **S = 4 bytes × parameters**. Here that is 43,560 bytes, the same in every step and on any number of ranks. A larger batch means more computing for the same amount of communication.
#
# ## One function, many processes
#
# A *rank* is one process of the job. The word also stands for the number of that process, counted from 0. The number of ranks is the *world size*. Every rank runs the **same function**: there is no main process that gives orders, and nobody passes the rank to the function as an argument. Instead, the function asks which rank it is on. This style is called SPMD, for single program, multiple data (Darema and others, 1988).
#
# Three numbers describe a rank's place. On two machines with four processes each, `torchrun`, PyTorch's own launcher, assigns these:
#
# | | machine 0 | machine 1 |
# |---|---|---|
# | **rank**: unique in the job | 0 1 2 3 | 4 5 6 7 |
# | **local rank**: unique on its machine | 0 1 2 3 | 0 1 2 3 |
# | **world size**: the same for all ranks | 8 | 8 |
#
# The rank decides which part of the work a process does, and the local rank decides which GPU it uses. On one machine the two numbers are equal, so a program that confuses them works until it gets a second machine. A process finds its local rank in an environment variable.
#
# `run` starts four ranks unless you give it a `world_size`. In the output, the `[2]` in front of a line names the rank that printed it. The ranks print at the same time. `run` shows the lines of rank 0 as they appear and the others' afterwards, in rank order.

# %% id="00-eca3ac"
def hello():
    print(f"I am rank {dist.get_rank()} of {dist.get_world_size()}")

run(hello)

# %% id="00-68ba17"
import os

def place():
    return dist.get_rank(), int(os.environ["LOCAL_RANK"]), os.getpid()

places = run(place, world_size=3).results
process_ids = {pid for _, _, pid in places}
print("rank and local rank:", [(rank, local_rank) for rank, local_rank, _ in places])
print("processes:", len(process_ids), "  this notebook is one of them:", os.getpid() in process_ids)

# %% [markdown] id="00-50ff5e"
# ## Nothing is shared
#
# The ranks are processes, not threads. When you call `run`, the function travels to each rank *by value*, as a copy, together with the global variables that it uses. Whatever a rank changes, it changes in its own copy.
#
# **Predict.** Four ranks append their number to `notes`. How long is the list in this notebook afterwards?

# %% id="00-8548bf"
notes = []

def take_note():
    notes.append(dist.get_rank())
    return notes

guess = None

# %% id="00-ea78c6"
taken = run(take_note).results
print(f"your guess: {guess}   recorded here: {len(notes)}")
print("what each rank had:", taken)
assert notes == [] and taken == [[0], [1], [2], [3]]

# %% [markdown] id="00-b2ca1c"
# Every rank appended to a list of its own, and the notebook's list stayed empty. A value can leave a rank in two ways: **return it**, as here, or **send it** to another rank. Sending is what `torch.distributed` is for.
#
# ## The problem in one process, then in four
#
# Add up the squares of 0 to 9. One process gets 285. That is our *reference*, and any number of processes must arrive at it.
#
# The naive way to use four ranks is to let each of them add all ten squares. That needs no messages, but four times the work. It is better if each rank adds up its own part, here every fourth number, and one `all_reduce` adds up the parts. The price is one int64 per rank, 8 bytes.

# %% id="00-c474bd"
reference = sum(i * i for i in range(10))
assert reference == 285

def sum_of_squares(n_items):
    mine = range(n_items)[dist.get_rank() :: dist.get_world_size()]
    total = torch.tensor(sum(i * i for i in mine))
    own = total.item()
    dist.all_reduce(total)  # in place: afterwards every rank has the sum
    return {"own part": [own], "the sum": [total.item()]}

parts = run(sum_of_squares, 10)
assert all(result["the sum"] == [reference] for result in parts.results)
assert [event.nbytes for event in parts.trace.events] == [8, 8, 8, 8]
draw.values(parts, caption="80 + 107 + 40 + 58 = 285: all_reduce leaves the same sum "
            "on every rank.")

# %% [markdown] id="00-146f22"
# ## Your turn: my_share
#
# **Required · 00.1 · difficulty ●○○ · about 15 minutes**
#
# Often a rank should own one *block* of neighbouring items: some rows of a matrix, or a stretch of a tensor. Write the function that tells a rank which block is its own. For 10 items on 4 ranks, the blocks are 0–2, 3–5, 6–7 and 8–9.
#
# **Goal.** The blocks are contiguous and in rank order. Their sizes differ by at most 1, and the larger ones come first. Together they hold every item exactly once. No communication is needed: the rank, the world size and `n_items` are enough.
#
# `check` tests the function on two levels. The *core* level (90 of 100 points) uses 2 to 5 ranks with at least one item each. The *sturdy* level (10 points) adds a single rank, more ranks, and fewer items than ranks; you may leave it for later.
#
# Replace the line that raises, and run the three cells. (After a kernel restart, select the first of them and choose *Run All Above Selected Cell* from the *Run* menu.)
#
# <details>
# <summary>Hint: start with two numbers</summary>
#
# `divmod(n_items, world_size)` gives two numbers: the size of the smaller blocks, and how many blocks need one item more. The larger blocks come first. Where does block *r* start? It starts after *r* blocks of the smaller size, plus one extra item for each larger block before it. How many of the blocks before block *r* are larger ones?
#
# </details>

# %% exercise="my_share" role="answer" points=10 required=true difficulty=1
def my_share(n_items: int) -> range:
    """The block of the items 0 to n_items − 1 that this rank owns.

    Every rank calls it with the same n_items. No rank sends anything.

    Args:
        n_items: how many items there are, 0 to a billion.

    Returns:
        A range of step 1. In rank order, the blocks follow one another without gap or overlap.
        Their sizes differ by at most 1, larger ones first. A rank without items gets an empty one.

    On 4 ranks, my_share(10) is range(0, 3), range(3, 6), range(6, 8), range(8, 10).
    """
    ### BEGIN SOLUTION
    rank = dist.get_rank()
    size, larger = divmod(n_items, dist.get_world_size())
    start = rank * size + min(rank, larger)
    return range(start, start + size + (rank < larger))
    ### END SOLUTION

# %% exercise="my_share" role="try"
blocks = run(my_share, 10).results
draw.values([list(block) for block in blocks], titles=["my_share(10)"],
            caption="One row per rank: the items from 0 to 9 that the rank owns.")

# %% exercise="my_share" role="check"
check(my_share)

# %% [markdown] id="00-c2b771"
# ## What carries the messages
#
# So far the ranks have talked through **gloo**. It is a *backend*: the library that moves the bytes. Your calls stay the same whichever backend you choose.
#
# | backend | ranks on | made for | how you get it |
# |---|---|---|---|
# | **gloo** | CPU | CPU training, notebooks, tests | in every PyTorch |
# | **NCCL** | NVIDIA GPUs, a different one for each rank | GPU training, within and across machines | in PyTorch's CUDA builds, on Linux |
# | **MPI** | CPU; GPU if your MPI supports it | clusters that have an MPI of their own | only by building PyTorch from source, against that MPI |
#
# MPI has many implementations, each compiled for its cluster. A ready-made PyTorch contains none: `dist.is_mpi_available()` returns False. By PyTorch's documentation, gloo accepts CUDA tensors in `broadcast` and `all_reduce`, but not in `send` and `recv`. (The `tcp` backend of old tutorials is gone. The address `tcp://`, further down, is something else.)
#
# **One process, one GPU.** In the program, each rank picks its GPU before anything uses CUDA. GPUs are numbered separately on every machine, so the local rank chooses:
#
# ```python
# torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
# ```
#
# On the command line, `CUDA_VISIBLE_DEVICES` hides GPUs from a process and renumbers the others from 0. CUDA reads it once, when a process first uses CUDA. This job sees only GPUs 2 and 3, under the numbers 0 and 1:
#
# ```bash
# CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc-per-node=2 train.py
# ```
#
# ## Why not Python's own multiprocessing?
#
# Python's `multiprocessing` has two classic ways to start a process. The first, `spawn`, cannot find a function from a cell. It starts a fresh interpreter and sends it a *pickle* of the function, which contains no code, only two names: the module's and the function's. The fresh interpreter looks in its own `__main__`, which is empty. This cell tries it with `hello`:

# %% id="00-9f1c69"
import pickle
import subprocess
import sys

pickled = pickle.dumps(hello)
print(len(pickled), "bytes:", pickled)
unpickle = [sys.executable, "-c", "import pickle, sys; pickle.load(sys.stdin.buffer)"]
print(subprocess.run(unpickle, input=pickled, capture_output=True).stderr.decode().splitlines()[-1])

# %% [markdown] id="00-20e240"
# The second, `fork`, may hang. It copies the running process with all its memory, including the function. But it copies only one thread, the one that calls `fork`. As soon as the notebook has run one operator on a large tensor, PyTorch has a pool of threads. The copy believes that it has this pool too, gives it work, and waits for ever.
#
# `run` takes a third way. It forks from a helper process that has imported torch and computed nothing, and it sends the function *by value*, including its code.
#
# ## How ranks find one another
#
# Four processes start, and none of them knows where the others are. They need a place where all of them can look. That place is the *store*, a small dictionary that every rank can reach. The handshake, called *rendezvous*, is short. Each rank opens a network port and writes its address into the store, under its own number. Then it reads the addresses of the others, waiting for those that are not there yet, and connects to them.
#
# Here is the handshake's first half by hand. The text `knock at door 100` stands for an address: no rank opens a port here. `init=False` starts the processes and leaves the rest to us. `run` keeps the store, and the variables `MASTER_ADDR` and `MASTER_PORT` hold its address.
#
# What would happen if one rank never came? Try it: insert `if rank == 2: return` before `store.set`, and take it out again. Press ■ in the toolbar when you have waited long enough; after 60 seconds `run` gives up.

# %% id="00-a608f9"
def meet():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(host, port, is_master=False)
    store.set(f"rank {rank}", f"knock at door {100 + rank}")
    return [store.get(f"rank {r}").decode() for r in range(world_size)]  # waits

run(meet, world_size=3, init=False).results[0]

# %% [markdown] id="00-d9d6e2"
# `init_process_group` does all that. It has to know where the store is, and it accepts three answers:
#
# * **`env://`**, the default, is what `torchrun` uses: the environment holds the rank, the world size and the address of the store.
# * **`file://`** keeps the store in a new file that every rank can open, for example on a shared disk. The store needs no port.
# * **`tcp://`** names the host and port of the store directly.
#
# The last two do not say which rank is which, so you pass the rank and the world size. The cell also shows the life cycle: **init, use, destroy**. Before init and after destroy there is no process group. To prove that the group works, each rank contributes a one: the sum is the number of ranks.

# %% id="00-a826c1"
import tempfile

def life(where):
    before = dist.is_initialized()
    who = {} if where == "env://" else {"rank": int(os.environ["RANK"]), "world_size": 3}
    dist.init_process_group("gloo", init_method=os.path.expandvars(where), **who)
    ones = torch.ones(1)
    dist.all_reduce(ones)
    dist.destroy_process_group()
    return before, int(ones), dist.is_initialized()

files = tempfile.TemporaryDirectory()
folder = files.name
for where in ("env://", f"file://{folder}/meeting", "tcp://$MASTER_ADDR:$MASTER_PORT"):
    results = run(life, where, world_size=3, init=False).results
    assert results == [(False, 3, False)] * 3
    print(where.partition("//")[0], results[0])

# %% [markdown] id="00-5e1b0d"
# ## Break it
#
# **Predict.** Rank 2 divides by zero, while the other ranks go on to add up their numbers. How many of the four ranks will return a sum?
#
# A cell that is meant to fail says so: `expect(RankFailed)` shows the error as `run` tells it, and lets the notebook go on.

# %% id="00-d41f7a"
def unfair():
    number = torch.tensor(12 // (2 - dist.get_rank()))
    dist.all_reduce(number)
    return number.item()

guess = None

# %% id="00-ecbf93"
with expect(RankFailed):
    run(unfair)
print(f"your guess: {guess}   correct: 0")

# %% [markdown] id="00-c27bba"
# Ranks 0, 1 and 3 made no mistake, but they were in `all_reduce`, waiting for a rank that would never come. `run` saw rank 2 fail, ended the other three, and told you the rank, the error and the line in the cell.
#
# Without `run`, most of the messages that you see come from ranks that made no mistake. When rank 2 dies, its connections close, and within seconds each of the others raises an error of its own:
#
# ```text
# RuntimeError: […/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:23981.
# This is typically caused by a remote worker crashing. Check the logs of the remote worker …
# ```
#
# So when you see `Connection closed by peer`, look for the rank that says something else: under `torchrun` its error is on the screen too, often above the others. A job that *hangs* is different: some rank is alive but never makes the call. Gloo waits for it, by default for 30 minutes.
#
# You meet a second error when you give `run` a function from a script. `run` has already formed the group, and the function tries to form it again. Take `init_process_group` out of the function, or call `run` with `init=False`.

# %% id="00-ba373d"
def pasted_from_a_script():
    dist.init_process_group("gloo")
    print("hello")

with expect(RankFailed):
    run(pasted_from_a_script)

# %% [markdown] id="00-f1cb2a"
# ## In practice: out of the notebook
#
# Nothing in `sum_of_squares` knows about this course. To become a script, it needs a line that forms the group, a line that destroys it, and a launcher: `torchrun`, which comes with PyTorch. It starts the processes of its machine, sets `RANK`, `LOCAL_RANK` and `WORLD_SIZE`, and ends the job when a process fails. In the script, a rank or world size of −1 means: take it from the environment.
#
# The cell writes hello_job.py to `folder`, then runs the command that you would type in a terminal in that folder: `torchrun --standalone --nproc-per-node=2 --local-ranks-filter=0 hello_job.py`. (It calls `torchrun` as `python -m torch.distributed.run`.) The filter shows only what rank 0 prints.

# %% id="00-af113d"
import inspect
import time

script = f"{folder}/hello_job.py"
with open(script, "w") as file:
    file.write(f"""import torch
import torch.distributed as dist

{inspect.getsource(sum_of_squares)}
def main(rank=-1, world_size=-1, where="env://"):
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=world_size)
    result = sum_of_squares(10)
    dist.destroy_process_group()
    return result

if __name__ == "__main__":
    print(main())
""")
torchrun = "-m torch.distributed.run --standalone --nproc-per-node=2 --local-ranks-filter=0"
start = time.perf_counter()
job = subprocess.run([sys.executable, *torchrun.split(), script], capture_output=True, text=True,
                     env=os.environ | {"TMPDIR": folder})  # for its logs
took = {"torchrun, 2 ranks": time.perf_counter() - start}
assert job.returncode == 0 and "[120]" in job.stdout and "[285]" in job.stdout, job.stderr
print(job.stdout)

# %% [markdown] id="00-77a1ca"
# Rank 0 contributed 120, rank 1 the other 165: 285 again.
#
# ## Measured: what starting costs
#
# **Predict.** Which of these four takes the longest time, and which the shortest?
#
# * the torchrun job from above;
# * the same file under `torch.multiprocessing.spawn`, which finds `main` because a file can be imported;
# * as a yardstick, a new Python that only imports torch;
# * `run` of a function that does nothing, on 1, 2 and 4 ranks: the median of five calls.
#
# On two busy cores this cell can take half a minute.

# %% id="00-8f3670"
from statistics import median

import torch.multiprocessing as mp

def seconds(call, *args, **kwargs):
    start = time.perf_counter()
    call(*args, **kwargs)
    return time.perf_counter() - start

sys.path.insert(0, folder)
import hello_job

took["spawn, 2 ranks"] = seconds(mp.spawn, hello_job.main, (2, f"file://{folder}/spawned"), 2)
files.cleanup()  # to repeat this, start again at life()
took["import torch alone"] = seconds(subprocess.run, [sys.executable, "-c", "import torch"])
for n in (1, 2, 4):
    several = [seconds(run, lambda: None, world_size=n) for _ in range(5)]
    took[f"run, {n} rank{'s' * (n > 1)}"] = median(several)
assert took["run, 2 ranks"] < took["spawn, 2 ranks"]
draw.bars(took, unit="s", caption="Most of the time is spent importing torch: in the ranks, "
          "side by side, and before that in torchrun itself. run() forks from a process that "
          "has imported it already.")

# %% [markdown] id="00-b9c646"
# **How `run` differs from torchrun.** `run` imports torch once, not once per rank. It records every call. It seeds each rank with its number; `train` set a seed of its own, so that all ranks drew the same numbers. It works on one machine only.
#
# **On GPUs**, `run(fn, backend="nccl")` starts one rank per visible GPU, and `device()` from `course_lib` returns the rank's GPU. `train` would have to move model, batches and test images there, with `.to(device())`.
#
# ## Roads not taken
#
# * **Threads** share memory and start without delay. But usually only one of them runs Python code at a time.
# * **`notebook_launcher`** from Hugging Face Accelerate starts ranks by `fork`, with the risk that you now know.
# * **ipyparallel** keeps its processes alive between cells. **mpi4py** is Python's way to MPI.

# %% [markdown] id="00-0b8760"
# ## What you can do now
#
# * ☑ start a function on several processes from a cell, and read what each of them returned and printed;
# * ☑ tell rank, local rank and world size apart, and say why the list stayed empty;
# * ☑ divide any number of items fairly among any number of ranks;
# * ☑ choose between gloo, NCCL and MPI, and give each rank its own GPU;
# * ☑ let processes meet by `env://`, `file://` and `tcp://`, and say what the store is for;
# * ☑ find out why a job broke, take your function out of the notebook with torchrun, and say what starting costs.
#
# **Next**, ranks communicate in pairs: one sends and the other receives, and soon two of them wait for each other for ever. [01, Send and receive without ever standing still](01_point_to_point.ipynb)
#
# ## Sources
#
# * PyTorch: [Distributed communication package](https://docs.pytorch.org/docs/stable/distributed.html) (backends, initialisation, the default timeout) · [torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html) (the environment that it sets) · [Multiprocessing best practices](https://docs.pytorch.org/docs/stable/notes/multiprocessing.html) · [Autograd and Fork](https://github.com/pytorch/pytorch/wiki/Autograd-and-Fork)
# * Python: [What can be pickled](https://docs.python.org/3/library/pickle.html#what-can-be-pickled-and-unpickled) · [Start methods](https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods) · [Global interpreter lock](https://docs.python.org/3/glossary.html#term-global-interpreter-lock) (threads)
# * Other ways: [Accelerate's `notebook_launcher`](https://huggingface.co/docs/accelerate/en/package_reference/launchers) · [ipyparallel](https://ipyparallel.readthedocs.io/en/latest/) · [mpi4py](https://mpi4py.readthedocs.io/en/stable/)
# * NVIDIA: [CUDA environment variables](https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars)
# * F. Darema, D. A. George, V. A. Norton, G. F. Pfister, *A single-program-multiple-data computational model for EPEX/FORTRAN*, Parallel Computing 7, 1988, [doi:10.1016/0167-8191(88)90094-4](https://doi.org/10.1016/0167-8191(88)90094-4)
# * The digits: E. Alpaydin, C. Kaynak, *Optical Recognition of Handwritten Digits*, UCI Machine Learning Repository, 1998, [doi:10.24432/C50P49](https://doi.org/10.24432/C50P49), CC BY 4.0
