"""A run at its true size: tensors have shapes and no values, and each kernel takes its time.

    simulate(train, world_size=128, backend="nccl", gpu=GPU.h100(), play=[0])

    y = x @ w ──► shapes.py      y's shape and dtype, by PyTorch's own rules, and no element of it
                    ├─► kernels.py       FLOPs and bytes ─► seconds on the compute stream
                    └─► bytes_alive.py   y's storage is alive from now on
    all_gather ─► valueless.py   the call takes its time on the network, and moves nothing
    simulate() ◄─ sized_run.py   seconds, kernels and memory

README.md, "A run at its true size", says what the model holds and what it leaves out.
"""
