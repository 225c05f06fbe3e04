"""All compute for three times as long as a wait may take before watch says where all stand."""

import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
end = time.time() + 3 * float(os.environ.get("COURSE_LIB_QUIET", "30"))
x = torch.rand(64, 64)
while time.time() < end:
    x = (x @ x).softmax(0)
    time.sleep(0.05)
dist.barrier()
print("finished")
dist.destroy_process_group()
