"""Names that no file and no page can hold: half characters, control characters, markup."""


def my_share(n_items):
    import gc

    name = "\ud800\x1b[31m\n# 100 of 100\n<script>"
    for thing in gc.get_objects():
        if type(thing).__name__ == "Talk":
            thing.send({"do": "span", "name": name, "start": 0.0, "end": 0.0})
            thing.receive()
            answer = {"returned": {"opaque": name}, "args": [1], "notes": []}
            thing.send({"do": "done", "seen": [answer]})
            thing.receive()
    return None
