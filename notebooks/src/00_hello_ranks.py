# %% [markdown] id="00-05c415"
# # Say hello from many processes
#
# **One function, many processes: each knows its number.**
#
# ![Two training steps of four ranks, as recorded: each computes alone, then waits in all_reduce for the others](../../figures/00_hello_ranks.png)
#
# *Where this goes: a few cells from here four ranks train one model, and the timeline shows when each of them computes, talks and waits.*
#
# | | |
# |---|---|
# | **Do** | start functions on several processes from a cell, let the processes find one another in three ways, divide work among them, break a job and read why it broke |
# | **Learn** | rank, local rank, world size; what is not shared; what the handshake does; which backend runs where; what starting costs |
# | **Need** | PyTorch on one device: you have trained a model before. No GPU, no cluster, nothing about distribution |
# | **Time** | 60 minutes (estimated), one required exercise |

# %% [markdown] id="00-385caf"
# ## Where you are going
#
# Before any explanation, a whole distributed training job. The data are real: 1,442 handwritten digits to learn from and 355 to be tested on, 8 × 8 pixels each. Read `train` as you would any training loop, and look for two unusual places:
#
# * `mine` is this process's part of the batch, every `world_size`-th image of it;
# * after `backward()` each gradient goes through `dist.all_reduce`, which replaces it, on every process, by the sum over all of them. Divided by their number it is the average.
#
# `span` gives a stretch of time a name, for a picture further down. The rest is PyTorch as you know it. `run(train, world_size=4)` calls the function in four new processes.

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
# Now the same job on one, two and four ranks, some seconds in all. Each call returns a `Run`, whose `results` hold what the function returned, one entry a rank. Every rank must report the same accuracy to the last digit: all began with equal weights and applied equal averages, so their weights are equal still. The cell asserts that, and that at least 97% of the test digits are recognised on any number of ranks.
#
# Equal accuracy could be luck. An equal *curve* is not: in the picture, the points of four ranks lie on the line of one process. What differs is rounding, because four partial sums are added in another order than one long one.

# %% id="00-bdac7f"
assert images.shape == (1442, 1, 8, 8) and test_images.shape == (355, 1, 8, 8)
runs = {n: run(train, world_size=n) for n in (1, 2, 4)}
curve = {}
for n, job in runs.items():
    losses = [losses for losses, _ in job.results]  # of each rank, one a step
    accuracies = [accuracy for _, accuracy in job.results]
    assert min(accuracies) == max(accuracies) >= 0.97
    curve[n] = torch.tensor(losses).mean(0)  # step by step, the mean over the ranks
    apart = (curve[n] - curve[1]).abs().max()
    assert apart < 1e-3
    print(f"ranks: {n}   accuracy: ~{100 * accuracies[0]:.1f} %   curve differs by: ~{apart:.0e}")
draw.lines(
    {"four ranks": (range(60), curve[4]), "one process": (range(60), curve[1])},
    xlabel="training step", ylabel="loss", formulas=["one process"],
    caption="Four ranks with a quarter of each batch follow the curve of one process "
    "with all of it.",
)

# %% [markdown] id="00-9b87ca"
# `run` also records what the ranks said to one another, and when. The timeline shows two steps from the middle of the job. Each rank computes, then comes to the four `all_reduce` calls, one for each parameter tensor of the model. Nobody gets past one before everybody has come: the vertical lines mark the moment when the last rank arrives, the hatching who waited for it.
#
# Do not look for a speed-up here. The model is so small that talking takes longer than computing, and four ranks share the cores of one machine. *When* more ranks pay is a question of its own, and much of this course answers it.

# %% id="00-dc53f1"
steps = [span.start for span in runs[4].trace.spans if span.rank == 0]
draw.timeline(
    runs[4], between=(steps[40], steps[42]),
    caption="Two training steps: every rank computes alone, then all meet in four "
    "all_reduce calls.",
)

# %% [markdown] id="00-4e72aa"
# **Predict.** The model has 64·9 + 64 + 1024·10 + 10 = 10,890 parameters, all float32. How many bytes does one rank hand over to `all_reduce` in one training step? Put a number in place of `None`.

# %% id="00-49f0f8"
guess = None

# %% id="00-5cb739"
recorded = sum(event.nbytes for event in runs[4].trace.of(0)) // 60
print(f"your guess: {guess}   recorded: {recorded:,} bytes a step")
assert recorded == 4 * (64 * 9 + 64 + 1024 * 10 + 10) == 4 * 10_890 == 43_560
assert len(runs[4].trace.of(0)) == 60 * 4  # a call for each parameter tensor in each step

# %% [markdown] id="00-0543d7"
# The size of a gradient is the size of the model: **S = 4 bytes × parameters**, here 43,560 bytes, the same in every step and on any number of ranks. A larger batch means more computing for the same talking.
#
# Now from the beginning.
#
# ## One function, many processes
#
# A *rank* is one process of the job, and also its number, from 0. The number of ranks is the *world size*. Every rank runs the **same function**: there is no main process that gives orders, and nobody passes a rank in. A rank asks who it is. (`run` starts four if you give no `world_size`.) This style is called SPMD, single program, multiple data (Darema and others, 1988).
#
# A `[2]` before a line names the rank that printed it. The ranks print at the same time; `run` shows rank 0 as it happens and the others after it, in order, so that the page always reads the same.
#
# Three numbers describe a rank's place. On two machines with four processes each, `torchrun` gives out:
#
# | | machine 0 | machine 1 |
# |---|---|---|
# | **rank**: unique in the job | 0 1 2 3 | 4 5 6 7 |
# | **local rank**: unique on its machine | 0 1 2 3 | 0 1 2 3 |
# | **world size**: the same for all | 8 | 8 |
#
# Work is divided by rank; a GPU is chosen by local rank. On one machine the two are equal, so programs that confuse them work until they get a second machine. The local rank comes in an environment variable.

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
# The ranks are processes, not threads. When you call `run`, the function travels to each of them *by value*, together with the global names that it uses, as a copy. (In the opening that was how `images` and `labels` got there.) What a rank changes, it changes in its own copy.
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
# Every rank appended to a list of its own, and this one stayed empty. A value gets out of a rank in two ways: **return it**, as here, or **send it** to another rank. Sending is what `torch.distributed` is for.
#
# ## The problem in one process, then in four
#
# Our work is small enough for pen and paper: the sum of the squares of 0 to 9. One process says 285. That is our *reference*: many processes have to come to the same.
#
# The naive way to use four ranks is to let each of them add all ten squares: no message, four times the work, one answer. Better: each rank adds its own part, here every fourth number, and one `all_reduce` adds the parts. The price is one integer a rank, 8 bytes.

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
assert [result["own part"] for result in parts.results] == [[80], [107], [40], [58]]
assert [event.nbytes for event in parts.trace.events] == [8, 8, 8, 8]
draw.values(parts, caption="80 + 107 + 40 + 58 = 285: all_reduce leaves the same sum "
            "on every rank.")

# %% [markdown] id="00-146f22"
# ## Your turn: my_share
#
# **Required · 00.1 · difficulty ●○○ · about 15 minutes**
#
# More often than every fourth item, a rank should own one *block* of neighbours: rows of a matrix, a stretch of a tensor. Write the function that tells a rank which block is its own. For 10 items on 4 ranks the blocks are 0–2, 3–5, 6–7 and 8–9.
#
# **Goal.** The blocks are contiguous and in rank order; their sizes differ by at most 1, the larger ones first; together they hold every item exactly once. No communication is needed: rank, world size and `n_items` are enough.
#
# The *core* level asks for 2 to 5 ranks with at least one item each. The *sturdy* level adds a single rank, more ranks, and fewer items than ranks; you may leave it for later.
#
# Write in place of the line that raises, and run the three cells. (After a kernel restart, *Run All Above Selected Cell* in the menu *Run* brings back what they need.)
#
# <details>
# <summary>Hint: start with two numbers</summary>
#
# `divmod(n_items, world_size)` gives the size of the smaller blocks and how many blocks need one item more. Those come first. Where does block *r* start? After *r* blocks of the smaller size, and one item more for each larger block before it. How many larger blocks are there before block *r*?
#
# </details>

# %% exercise="my_share" role="answer" points=10 required=true difficulty=1
def my_share(n_items: int) -> range:
    """The block of the items 0 … n_items − 1 that this rank owns.

    Every rank calls it with the same n_items; no rank sends anything.

    Args:
        n_items: how many items there are, 0 to a billion.

    Returns:
        A range of step 1. In rank order the blocks follow one another without gap or overlap;
        their sizes differ by at most 1, larger ones first. Empty where nothing is left.

    With 4 ranks, my_share(10) is range(0, 3), range(3, 6), range(6, 8), range(8, 10).
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
            caption="A row for each rank: which of the items 0 to 9 does it own?")

# %% exercise="my_share" role="check"
check(my_share)

# %% [markdown] id="00-4440a7"
# ## How ranks find one another
#
# Four processes start, and none knows where the others are. They need one thing in common: a place where all of them can look. That place is the *store*, a small dictionary that all can reach. The handshake, called *rendezvous*, is short. Each rank opens a network port, writes the address into the store under its own number, and reads the addresses of the others, waiting for those that are not there yet. Then they connect, and the store has done its work.
#
# Here is the handshake by hand. `init=False` starts the processes and leaves the rest to us. What would happen if one rank never came? Let rank 2 `return` first: the others wait until `run`, after 60 seconds, says where, or you press ■ in the toolbar.

# %% id="00-a608f9"
def meet():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(host, port, is_master=False)
    store.set(f"rank {rank}", f"knock at door {100 + rank}")
    return [store.get(f"rank {r}").decode() for r in range(world_size)]  # waits

run(meet, world_size=3, init=False).results[0]

# %% [markdown] id="00-d9d6e2"
# `init_process_group` does all that. It only has to be told where the store is, and there are three ways to say it.
#
# **`env://`** is the default, and what `torchrun` uses: the rank, the world size and the address of the store are in the environment.
#
# **`file://`** keeps the store in a file that every rank can open, on one machine or on a shared disk; no port is needed. The file must not be there before, and nobody else may use it.
#
# **`tcp://`** names the host and port of the store. By hand, rank 0 would open it there; here, as under torchrun, whoever started the processes has done so already.
#
# The last two do not say who is who, so the rank and the world size are given. The cell also shows the life cycle: **init, use, destroy**. Before and after there is no group, and calls such as `get_rank` fail. To prove that the group works, it counts the ranks by adding up ones.

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

# %% [markdown] id="00-c2b771"
# ## What carries the messages
#
# `"gloo"` was the *backend*: the library that moves the bytes. The calls stay the same, whichever you choose.
#
# | backend | ranks on | made for | how you get it |
# |---|---|---|---|
# | **gloo** | CPU | CPU training, notebooks, tests | in every PyTorch |
# | **NCCL** | NVIDIA GPUs, a different one for each rank | GPU training, in one machine and between machines | in PyTorch's CUDA builds, on Linux |
# | **MPI** | CPU; GPU if that MPI can | clusters that have an MPI of their own | only by building PyTorch from source, beside that MPI |
#
# MPI is an interface with many implementations, each compiled for its cluster. A ready-made PyTorch cannot contain yours, so it contains none: `dist.is_mpi_available()` says no. Gloo takes CUDA tensors for collectives such as `all_reduce`, but not for `send` and `recv`.
#
# **One process, one GPU.** NCCL wants a GPU for each rank. Two habits see to that. In the program, before anything uses CUDA, each rank takes its own. GPUs are numbered anew on every machine, hence the local rank:
#
# ```python
# torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
# ```
#
# And on the command line, `CUDA_VISIBLE_DEVICES` hides GPUs from a process and numbers the others from 0. This job sees two GPUs, 0 and 1:
#
# ```bash
# CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc-per-node=2 train.py
# ```
#
# It is read when CUDA starts; setting it after the first CUDA call changes nothing.

# %% [markdown] id="00-16cbe0"
# ## Why not Python's own multiprocessing?
#
# Because of where a cell's function lives. Python's `spawn` starts a fresh interpreter and sends it a *pickle* of the function. For a function that is its module and its name, no code. The new interpreter looks up the name in its own, empty `__main__`. This cell does so with the real bytes:

# %% id="00-9f1c69"
import pickle
import subprocess
import sys

parcel = pickle.dumps(hello)
print(len(parcel), "bytes:", parcel)
unpack = [sys.executable, "-c", "import pickle, sys; pickle.load(sys.stdin.buffer)"]
print(subprocess.run(unpack, input=parcel, capture_output=True).stderr.decode().splitlines()[-1])

# %% [markdown] id="00-20e240"
# The other classic, `fork`, copies the running process with all its memory, the function included, in a fraction of a second. But of its threads it copies only the one that calls. Once the notebook has run `backward()`, PyTorch has a pool of threads; the copy believes that it has them too, waits for them, and stands still for ever. So a forked job works until you have trained something in the notebook. PyTorch advises against it.
#
# `run` goes a third way. It forks from a helper process that has imported torch and done nothing else, and sends the function *by value*, its code included. That is fast, and works after `backward()`.
#
# ## Break it
#
# **Predict:** rank 2 divides by zero, while the others go on to add up their numbers. What becomes of ranks 0, 1 and 3, who have made no mistake?

# %% id="00-ecbf93"
def unfair():
    number = torch.tensor(12 // (2 - dist.get_rank()))
    dist.all_reduce(number)
    return number.item()

with expect(RankFailed):
    run(unfair)

# %% [markdown] id="00-c27bba"
# They stood in `all_reduce`, waiting for a rank that would never come. `run` saw rank 2 fail, ended all four, and told you the rank, the error and the line of the cell. Left alone they would have waited for gloo's timeout, 30 minutes by default. When a distributed job hangs, look first for a rank that failed quietly.
#
# You will meet a second one when you paste a script into a notebook: `run` has formed the group, and the script forms it again. Take that line out, or say `init=False`.

# %% id="00-ba373d"
def pasted_from_a_script():
    dist.init_process_group("gloo")
    print("hello")

with expect(RankFailed):
    run(pasted_from_a_script)

# %% [markdown] id="00-f1cb2a"
# ## In practice: out of the notebook
#
# Nothing in `sum_of_squares` knows about this course. As a script it needs a first and a last line, init and destroy, and somebody to start it. That is `torchrun`, which comes with PyTorch: it starts the processes on each machine, keeps the store, sets `RANK`, `LOCAL_RANK` and `WORLD_SIZE`, and ends the job when one of them fails. The defaults of `main` are those of `init_process_group`: all of it comes from the environment.
#
# The cell writes the file and does what you would type in a terminal: `torchrun --standalone --nproc-per-node=2 --local-ranks-filter=0 hello_job.py`. The filter shows what rank 0 prints; without it every line comes once a rank.

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
# ## Measured: what starting costs
#
# Rank 0 added 120, rank 1 the rest: again 285. You will have noticed the wait. So let us measure: the torchrun job from above; the same file under `torch.multiprocessing.spawn`, which finds `main` because a file can be imported; a job that does nothing under `run`, the median of five; and, as a yardstick, a new Python that only imports torch.

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
files.cleanup()  # no file stays behind
took["import torch alone"] = seconds(subprocess.run, [sys.executable, "-c", "import torch"])
for n in (1, 2, 4):
    several = [seconds(run, lambda: None, world_size=n) for _ in range(5)]
    took[f"run, {n} rank{'s' * (n > 1)}"] = median(several)
assert took["run, 2 ranks"] < took["spawn, 2 ranks"]
draw.bars(took, unit="s", caption="What costs time is importing torch anew in every process. "
          "run() forks from a process that has imported it already.")

# %% [markdown] id="00-b9c646"
# For a training job of hours a few seconds do not matter, and fresh interpreters are the cleaner start. For a cell that you run twenty times in an hour they do.
#
# **When `run` differs from torchrun.** It imports torch once, not in each rank; it records every call; it seeds each rank with its number, so that ranks draw different random numbers unless you seed them yourself, as `train` did; and it knows one machine only.
#
# **On GPUs**, `run(fn, backend="nccl")` starts one rank for each visible GPU, and `device()` from `course_lib` is the GPU of the rank. `train` would need the model and each batch moved there, with `.to(device())`. Nothing on this page was measured on a GPU.
#
# ## Roads not taken
#
# * **Threads** share memory and start at once, but in most Pythons one of them runs at a time, and none can be on another machine.
# * **`notebook_launcher`** of Hugging Face Accelerate starts ranks from a cell by `fork`, with the limit that you now know.
# * **ipyparallel** keeps engines alive between cells: quick, but what one cell leaves behind is there in the next.
# * **mpi4py** is Python's way to MPI, with the same ranks and collectives, and no autograd.
# * **`torch.distributed.launch`** is torchrun's predecessor, still seen in older scripts.

# %% [markdown] id="00-0b8760"
# ## What you can do now
#
# * ☑ start a function on several processes from a cell, and read what each returned and printed;
# * ☑ tell rank, local rank and world size apart, and say why the list stayed empty;
# * ☑ let processes meet by `env://`, `file://` and `tcp://`, and say what the store is for;
# * ☑ choose between gloo, NCCL and MPI, and give each rank its own GPU;
# * ☑ divide any number of items fairly among any number of ranks;
# * ☑ read why a job broke, and take your function out of the notebook with torchrun.
#
# **Next**, ranks talk to one another in pairs: one sends, the other receives, and two of them soon wait for each other for ever: [01, Send and receive without ever standing still](01_point_to_point.ipynb).
#
# ## Sources
#
# * PyTorch: [Distributed communication package](https://docs.pytorch.org/docs/stable/distributed.html) (backends, initialisation, the default timeout) · [torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html) (the environment that it sets) · [Multiprocessing best practices](https://docs.pytorch.org/docs/stable/notes/multiprocessing.html) · [Autograd and Fork](https://github.com/pytorch/pytorch/wiki/Autograd-and-Fork)
# * Python: [What can be pickled](https://docs.python.org/3/library/pickle.html#what-can-be-pickled-and-unpickled) · [Start methods](https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods) · [Global interpreter lock](https://docs.python.org/3/glossary.html#term-global-interpreter-lock) (threads)
# * Other ways: [Accelerate's `notebook_launcher`](https://huggingface.co/docs/accelerate/en/package_reference/launchers) · [ipyparallel](https://ipyparallel.readthedocs.io/en/latest/) · [mpi4py](https://mpi4py.readthedocs.io/en/stable/)
# * NVIDIA: [CUDA environment variables](https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars)
# * F. Darema, D. A. George, V. A. Norton, G. F. Pfister, *A single-program-multiple-data computational model for EPEX/FORTRAN*, Parallel Computing 7, 1988, [doi:10.1016/0167-8191(88)90094-4](https://doi.org/10.1016/0167-8191(88)90094-4)
# * The digits: E. Alpaydin, C. Kaynak, *Optical Recognition of Handwritten Digits*, UCI Machine Learning Repository, 1998, [doi:10.24432/C50P49](https://doi.org/10.24432/C50P49), CC BY 4.0
