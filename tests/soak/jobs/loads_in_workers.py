"""Batches come from DataLoader's own processes."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    dist.init_process_group("gloo")
    total = torch.zeros(1)
    data = TensorDataset(torch.arange(32.0))
    for (batch,) in DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True):
        dist.all_reduce(batch)
        total += batch.sum()
    print("total", total.item())
    dist.destroy_process_group()
