"""Diagnosis: 02.values-differ

A tree of three rounds reaches eight ranks, and the ninth keeps what it had, without an error.
"""

import torch
import torch.distributed as dist


def my_broadcast(tensor: torch.Tensor, src: int) -> None:
    n = dist.get_world_size()
    place = (dist.get_rank() - src) % n
    letter = tensor.contiguous()
    for knowing in (1, 2, 4):
        if place < knowing and place + knowing < n:
            dist.send(letter, dst=(place + knowing + src) % n)
        elif knowing <= place < 2 * knowing:
            dist.recv(letter, src=(place - knowing + src) % n)
    if place > 0 and letter is not tensor:
        tensor.copy_(letter)
