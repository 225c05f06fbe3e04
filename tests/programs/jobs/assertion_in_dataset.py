"""One rank's share of the data has an item that its dataset refuses.

told: RankFailed: rank 1 raised AssertionError
"""

import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Numbers(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        if index == 9:
            print("cause", time.time(), flush=True)
        assert index != 9, "label 12 is out of range"  # told
        return torch.ones(4) * index


dist.init_process_group("gloo")
data = Numbers()
for batch in DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False)):
    dist.all_reduce(batch)
dist.destroy_process_group()
