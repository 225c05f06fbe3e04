"""Name peers, groups and Works that there are not, and wait for what somebody else is to get."""


def exchange(mine, partner):
    ask = dist.group.WORLD._groups._ask
    row = {"dtype": "float32", "shape": [1], "stride": [1], "offset": 0, "piece": 0}
    site, memory = [None, True, False, False], ["AAAAAA=="]
    to = {"op": "recv", "tensors": [row], "memory": memory, "tag": 0, "peer": partner, "site": site}
    requests = [  # the first that is refused is the rank's last: each case tries another one
        ("message", to | {"op": "send", "group": -1, "peer": -1}),
        ("message", to | {"group": 0, "peer": 1 << 20}),
        ("message", to | {"op": "_meet", "group": 7, "tag": -3, "peer": dist.get_rank()}),
        ("wait", {"work": -1, "seconds": None, "memory": [], "line": None}),
        ("wait", {"work": 0, "seconds": None, "memory": [], "line": None, "rank": partner}),
        ("settle", {"work": 0, "memory": [["sent"]]}),
        ("make", {"op": "new_group", "name": "x", "ranks": [99], "local": True, "site": site}),
        ("__init__", {"stage": None, "rank": partner}),
    ]
    do, what = requests[(mine.numel() + dist.get_world_size()) % len(requests)]
    return torch.tensor(ask(do, **what)["memory"])
