"""A modelled GPU for each rank: simulate(…, backend="nccl").

    streams.py        the host's clock, streams, events, and a Lane for each group
    nccl.py           groups and Works by NCCL's rules

With ``cuda=True`` a script may say "cuda", too:

    tensor_place.py   on which GPU a tensor lies
    placement.py      the mode that marks tensors, and refuses what torch refuses
    cuda.py           what torch.cuda answers
    only_on_gpus.py   kernels that torch has on GPUs only
"""
