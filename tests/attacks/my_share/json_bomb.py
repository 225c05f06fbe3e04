"""Frames that are deep, large or of the wrong types."""


def my_share(n_items):
    import gc

    for thing in gc.get_objects():
        if type(thing).__name__ == "Talk":
            body = b'{"do":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
            thing.sock.sendall(len(body).to_bytes(4, "little") + body)
            thing.send(
                {"do": "done", "seen": [{"returned": {"int": "9" * 5000}, "args": 7, "notes": 0}]}
            )
            thing.send({"do": ["send"], "tensors": {"pieces": [1], "tensors": [[-1]]}})
    return None
