"""Name peers, groups and Works that there are not, and wait for what somebody else is to get."""


def exchange(mine, partner):
    ask = dist.group.WORLD._groups._ask
    row = {"dtype": "float32", "shape": list(mine.shape), "stride": list(mine.stride())}
    to, site = {"tensors": [row], "tag": 0, "peer": partner}, [None, True, False, False]
    requests = [  # the first that is refused is the rank's last: each case tries another one
        ("send", to | {"group": -1, "peer": -1, "site": site}),
        ("recv", to | {"group": 0, "peer": 1 << 20, "site": site}),
        ("recv", to | {"group": 7, "tag": -3, "peer": dist.get_rank(), "site": site}),
        ("wait", {"work": -1, "seconds": None, "touched": "", "line": None}),
        ("wait", {"work": 0, "seconds": None, "touched": "", "line": None, "rank": partner}),
        ("settle", {"work": 0, "touched": ["sent"]}),
        ("make", {"op": "new_group", "name": "x", "ranks": [99], "local": True, "site": site}),
        ("__init__", {"stage": None, "rank": partner}),
    ]
    do, what = requests[(mine.numel() + dist.get_world_size()) % len(requests)]
    return torch.tensor(ask(do, **what)["values"])
