"""Answers to in_order."""

import torch
import torch.distributed as dist


def along_the_row(work):
    rank, n = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    if rank > 0:
        dist.recv(token, rank - 1)
    work()
    if rank < n - 1:
        dist.send(token, rank + 1)


def counts_those_before(work):
    rank, n = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    for before in range(rank):
        dist.recv(token, before)
    work()
    for later in range(rank + 1, n):
        dist.send(token, later)


def rank_0_calls_out(work):
    rank, n = dist.get_rank(), dist.get_world_size()
    go, done = torch.ones(1), torch.empty(0)
    if rank > 0:
        dist.recv(go, 0)
        work()
        dist.send(done, 0)
        return
    work()
    for other in range(1, n):
        dist.send(go, other)
        dist.recv(done, other)


def round_and_home(work):
    rank, n = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1, dtype=torch.int64)
    if rank > 0:
        dist.irecv(token, rank - 1).wait()
    work()
    if n > 1:
        dist.isend(token + 1, (rank + 1) % n).wait()
    if rank == 0 and n > 1:
        dist.recv(token, n - 1)


WAITS = "    if rank > 0:\n        dist.recv(token, rank - 1)\n"
TELLS = "    if rank < n - 1:\n        dist.send(token, rank + 1)\n"
HOME = "    if rank == 0 and n > 1:\n        dist.recv(token, n - 1)\n"
WRONG = {
    "nothing": ("along_the_row", "01.nobody-told", "ranks are numbered, so surely they come in "
                "that order", (WAITS, ""), (TELLS, "")),
    "barriers": ("along_the_row", "01.collective", "n barriers make it right; nobody was asked to "
                 "meet", (WAITS, "    for _ in range(rank):\n        dist.barrier()\n"),
                 (TELLS, "    for _ in range(n - rank):\n        dist.barrier()\n")),
    "rank_0_waits": ("round_and_home", "01.receive-first", "a ring has no beginning, a row has",
                     ("if rank > 0:\n        dist.irecv(token, rank - 1)", "if n > 1:\n        "
                      "dist.irecv(token, (rank - 1) % n)"), (HOME, "")),
    "nobody_left": ("round_and_home", "01.waits-in-vain", "the other end is forgotten", (HOME, "")),
    "anybody": ("rank_0_calls_out", "01.too-early", "whoever asks first has the next turn",
                ("dist.recv(go, 0)", "dist.send(done, 0)\n        dist.recv(go, 0)"),
                ("        dist.send(go, other)\n        dist.recv(done, other)", "        asks = "
                 "dist.recv(done)\n        dist.send(go, asks)\n        dist.recv(done, asks)")),
    "never_waits": ("along_the_row", "01.never-waited", "irecv sounds as if it received",
                    (WAITS, WAITS.replace("recv", "irecv"))),
    "one_for_all": ("rank_0_calls_out", "01.one-works-for-all", "the loop over ranks is taken for "
                    "what one rank does", ("        work()\n        dist.send(done, 0)\n",
                    "        dist.send(done, 0)\n"), ("        dist.send(go, other)\n",
                    "        work()\n        dist.send(go, other)\n")),
    "rank_0_works": ("round_and_home", "01.not-everywhere", "rank 0 works for all, one thinks",
                     ("    work()\n", "    if rank == 0:\n        work()\n")),
    "hears_late": ("along_the_row", "01.hears-late", "waits after the work",
                   (WAITS, "    coming = dist.irecv(token, rank - 1) if rank else None\n"),
                   ("    work()\n", "    work()\n    coming.wait() if coming else None\n")),
}  # fmt: skip
