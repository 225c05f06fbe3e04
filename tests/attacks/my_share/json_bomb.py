"""Messages that are deep, of the wrong types, or no JSON, and at last one that never ends."""


def my_share(n_items):
    import gc

    (talk,) = (t for t in gc.get_objects() if type(t).__name__ == "Talk")
    if n_items % 2:
        talk.send({"do": "done", "seen": [{"returned": {"int": "9"}, "args": 7, "notes": 0}]})
    if n_items % 3:
        talk.sock.sendall(b'{"do":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n")
    while True:
        talk.sock.sendall(b"[]," * (1 << 18))
