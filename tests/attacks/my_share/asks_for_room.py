"""Ask the judge to make room for messages that never come, in tensors that are mostly stride."""

SHAPES = [([1 << 40], [0]), ([1 << 13] * 2, [1, 0]), ([2, 2], [1 << 38, 1]), ([3 << 18], [1])]
ROOM = "AAAA" * (1 << 21)  # six megabytes of zeros


def my_share(n_items):
    ask = dist.group.WORLD._groups._ask
    shape, stride = SHAPES[(n_items + dist.get_world_size()) % 4]
    rows = [{"dtype": "float64", "shape": shape, "stride": stride, "offset": 0, "piece": 0}]
    while True:
        ask("message", op="recv", group=0, tag=0, peer=-1, tensors=rows, memory=[ROOM],
            site=[None, False, False, False])  # fmt: skip
