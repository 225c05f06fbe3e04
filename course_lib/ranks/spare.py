"""Worlds that are ready before they are asked for, and worlds that are done with."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref

from course_lib.errors import CourseError
from course_lib.ranks import job
from course_lib.ranks.server import Server
from course_lib.ranks.world import World


class Stock:
    """The worlds of this process: one in use, one ready for the next call.

    The spare's processes are as fresh as any: they have done nothing but form their group. It is
    used if the next call wants the same world in the same environment and thrown away if not;
    after a minute its ranks leave by themselves. ``COURSE_LIB_SPARE`` is the time in seconds for
    which it is kept; 0 switches it off. A spare rank has about 10 MB of memory to itself (measured:
    8.7 to 10.7 MiB, with torch 2.15 on Linux, 2 to 8 ranks); the rest, torch above all, it shares
    with the fork server that started it. ``python -m course_lib bench`` measures it anew.
    """

    def __init__(self) -> None:
        self._server: Server | None = None
        self._lock = threading.Lock()
        self.spare: World | None = None
        self._ended: list[World] = []
        self._all: weakref.WeakSet[World] = weakref.WeakSet()

    def take(self, plan: job.Plan) -> World:
        """A world for this plan: the spare if it fits, else a new one."""
        with self._lock:
            while self._ended:
                self._ended.pop().release()
            spare, self.spare = self.spare, None
            if spare is not None:
                if spare.plan.same_world(plan) and spare.fresh:
                    spare.plan = plan
                    return spare
                spare.close()
            return self._open(plan)

    def _open(self, plan: job.Plan) -> World:
        try:
            try:
                world = World(plan, self._server or self._new_server())
            except BrokenPipeError:  # it has died since
                world = World(plan, self._new_server())
        except OSError as error:
            raise CourseError(f"{plan.world_size} ranks did not start: {error.strerror}") from None
        self._all.add(world)
        return world

    def _new_server(self) -> Server:
        self.drop_server()
        self._server = Server()
        return self._server

    def drop_server(self) -> None:
        """Kill the fork server, if there is one."""
        if self._server is not None:
            self._server.kill()
        self._server = None

    def done(self, world: World) -> None:
        """End a world, and start the next one like it in the background."""
        plan, answered = world.plan, any(rank.pid for rank in world.ranks)
        wanted = job.spare_seconds() > 0 and plan.init and plan.backend == "gloo"
        with self._lock:
            world.end()
            if plan.init:
                self._ended.append(world)  # to give back its files can wait for the next call
            else:
                world.release()  # a port cannot
            if not answered:
                self.drop_server()  # the next run shall not wait for this one
            elif wanted and self.spare is None:
                with contextlib.suppress(CourseError):  # the next run starts its own, and tells
                    self.spare = self._open(plan)

    def after_fork(self) -> None:
        """A fork of the notebook holds copies of all our sockets: let go, and start anew."""
        for world in list(self._all):
            world.release()
        if self._server is not None:
            self._server.release()
        self.__init__()  # type: ignore[misc]


stock = Stock()
os.register_at_fork(after_in_child=stock.after_fork)
