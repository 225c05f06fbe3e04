"""Train on the digits on many devices:  torchrun --standalone --nproc-per-node=8 ddp.py

single.py beside it is the same script on one device. Compare them line by line.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader, DistributedSampler

from course_lib import load_digits

EPOCHS, BATCH = 4, 64
digits, test = load_digits(), load_digits(train=False)

local_rank = int(os.environ["LOCAL_RANK"])  # from torchrun: which process of this machine
on_gpu = torch.cuda.is_available()
device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(local_rank)
dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
rank, world_size = dist.get_rank(), dist.get_world_size()

sampler = DistributedSampler(digits)
loader = DataLoader(digits, BATCH // world_size, sampler=sampler, drop_last=True, pin_memory=on_gpu)

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 10)
).to(device)
ddp = DistributedDataParallel(model, device_ids=[local_rank] if on_gpu else None)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = ExponentialLR(optimizer, gamma=0.9)

for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    model.train()
    for images, labels in loader:
        # From pinned memory the copies are only queued; the host does not wait for them.
        images, labels = (t.to(device, non_blocking=True) for t in (images, labels))
        loss = cross_entropy(ddp(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()

    model.eval()
    with torch.no_grad():
        images, labels = test[rank::world_size]
        right = (model(images.to(device)).argmax(1) == labels.to(device)).sum()
    dist.all_reduce(right)
    if rank == 0:
        print(f"epoch {epoch}  test accuracy {right.item() / len(test):.4f}", flush=True)

parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
state = {name: part.state_dict() for name, part in parts.items()} | {"epoch": epoch}
if rank == 0:
    torch.save(state, "digits.pt")
dist.destroy_process_group()
