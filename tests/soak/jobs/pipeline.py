"""A pipeline of two stages, scheduled 1F1B."""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
stage = PipelineStage(torch.nn.Linear(8, 8), rank, 2, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
losses = []
for _ in range(2):
    if rank == 0:
        schedule.step(torch.ones(16, 8))
    else:
        schedule.step(target=torch.zeros(16, 8), losses=losses)
print("losses", len(losses))
dist.destroy_process_group()
