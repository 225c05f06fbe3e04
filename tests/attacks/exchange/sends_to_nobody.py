"""Name peers, groups and Works that there are not, and wait for what somebody else is to get."""


def exchange(mine, partner):
    ask = dist.group.WORLD._groups._ask
    site, like = [None, True, False, False], ["float32", [1]]
    to = {"op": "recv", "like": like, "given": [], "tag": 0, "peer": partner, "site": site}
    wait = {"seconds": None, "line": None}
    requests = [  # the first that is refused is the rank's last: each case tries another one
        ("message", to | {"op": "send", "group": -1, "peer": -1}),
        ("message", to | {"group": 0, "peer": 1 << 20}),
        ("message", to | {"op": "_meet", "group": 7, "tag": -3, "peer": dist.get_rank()}),
        ("message", to | {"op": "send", "group": 0, "given": ["AAAAAAAAAAA="]}),
        ("wait", wait | {"call": -1}),
        ("wait", wait | {"call": 1, "rank": partner}),
        ("wait_until_all_called", {"call": [1]}),
        ("accuse", {"hazard": "deadlock", "numbers": [1]}),
        ("make", {"op": "new_group", "name": "x", "ranks": [99], "local": True, "site": site}),
        ("__init__", {"stage": None, "rank": partner}),
    ]
    do, what = requests[(mine.numel() + dist.get_world_size()) % len(requests)]
    return torch.tensor(ask(do, **what)["came"])
