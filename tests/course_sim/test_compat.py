"""What the simulator uses of torch's private parts. If torch moves one, this says which."""

from __future__ import annotations

import threading

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from course_sim.isolation import compat


def test_this_torch_can_simulate():
    assert compat.missing() is None


def test_what_is_gone_is_named_in_one_line(monkeypatch):
    monkeypatch.delattr(torch._C._distributed_c10d, "_set_thread_isolation_mode")
    assert "_set_thread_isolation_mode is not there" in (compat.missing() or "")


def test_each_thread_has_its_own_world_and_the_old_one_comes_back():
    world, seen = c10d._world, {}

    def look(name):
        compat.enter_world(_Group(name), {0: 0})
        barrier.wait()
        seen[name] = c10d._world.default_pg.group_name, c10d._resolve_process_group(name).group_name
        compat.leave_world()

    barrier = threading.Barrier(2)
    with compat.separate_worlds():
        threads = [threading.Thread(target=look, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert c10d._world.default_pg is world.default_pg
    assert seen == {"a": ("a", "a"), "b": ("b", "b")} and c10d._world is world


class _Group(dist.ProcessGroup):
    backend = "gloo"

    def __init__(self, name):
        super().__init__(0, 1)
        self._name = name

    group_name = property(lambda self: self._name)

    def get_group_store(self):
        return compat.store()
