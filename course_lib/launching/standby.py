"""The world that is ready before it is asked for.

    world = standby.take_world(plan)     at once, if the last call had the same plan
    standby.replace(world)               it ends, and the next one starts in the background

This module registers a hook at import, for a fork of the notebook's process: ``standby`` holds
sockets that would keep the ranks alive as long as the copy lives. Nothing that only records
imports launching, so a job that is watched has no such hook.
"""

from __future__ import annotations

import contextlib
import os
import threading

from course_lib.errors import CourseError, NotStarted
from course_lib.launching.forkserver import ForkServer
from course_lib.launching.plan import Plan
from course_lib.launching.world import World


class Standby:
    """Keeps one world ready for the next call.

    Its ranks are as fresh as any: they have done nothing but form their group. The next call takes
    it if it wants the same world in the same environment; otherwise it is thrown away. After a
    minute its ranks leave by themselves. ``COURSE_LIB_STANDBY`` sets that time in seconds; 0
    switches the standby off.
    """

    def __init__(self) -> None:
        self.ready: World | None = None
        self._server: ForkServer | None = None
        self._lock = threading.Lock()

    def take_world(self, plan: Plan) -> World:
        """The world that stands by, if it is one for this plan; otherwise a new one."""
        with self._lock:
            ready, self.ready = self.ready, None
            if ready is not None:
                if ready.plan == plan and ready.is_fresh():
                    return ready
                ready.end()
            return self._open(plan)

    def _open(self, plan: Plan) -> World:
        """A new world, on a fork server that is alive."""
        try:
            if self._server is not None and self._server.has_died:
                self.drop_server()
            self._server = self._server or ForkServer()
            return World(plan, self._server)
        except OSError as error:
            raise NotStarted(
                f"the ranks did not start ({plan.world_size} in number): {error.strerror}. "
                "How many processes and open files may you have, and how much memory (ulimit -a)?"
            ) from None

    def drop_server(self) -> None:
        """Kill the fork server, if there is one."""
        if self._server is not None:
            self._server.kill()
        self._server = None

    def replace(self, world: World) -> None:
        """End a world, and start one like it in the background."""
        # A fork server that has started no rank in all that time is stuck, or never came up.
        plan, answered = world.plan, any(rank.pid for rank in world.ranks)
        wanted = plan.standby > 0 and plan.init and plan.backend == "gloo"
        with self._lock:
            world.end()
            if not answered:
                self.drop_server()  # the next run shall not wait for this one
                return
            if wanted and self.ready is None:
                with contextlib.suppress(CourseError):  # the next run tries again, and says why
                    self.ready = self._open(plan)

    def after_fork(self) -> None:
        """A fork of the notebook holds copies of our sockets: close them, and begin anew."""
        if self.ready is not None:
            self.ready.files.close()
        if self._server is not None:
            self._server.release()
        self.__init__()  # type: ignore[misc]


standby = Standby()
os.register_at_fork(after_in_child=standby.after_fork)
