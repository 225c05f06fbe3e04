"""Name peers, groups and Works that there are not, and wait for what somebody else is to get."""


def exchange(mine, partner):
    ask = dist.group.WORLD._groups._ask
    place = {"line": None, "direct": True, "blocking": False, "carries": False}
    row = {"dtype": "float32", "shape": list(mine.shape), "stride": list(mine.stride())}
    inbox = torch.zeros_like(mine)
    for what in (
        {"do": "send", "group": -1, "tag": 0, "peer": -1, "tensors": [row]},
        {"do": "recv", "group": 0, "tag": 0, "peer": 1 << 20, "tensors": [row]},
        {"do": "recv", "group": 7, "tag": -3, "peer": dist.get_rank(), "tensors": [row]},
        {"do": "wait", "work": -1, "seconds": None, "touched": "", "tensors": []},
        {"do": "settle", "work": 0, "touched": ["sent"], "tensors": []},
    ):
        try:
            reply = ask(what.pop("do"), **what, **place)
            inbox = torch.tensor(reply["values"])
        except Exception:
            continue
    return inbox
