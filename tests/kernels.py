"""A notebook's kernel, for tests that execute cells in one."""

from __future__ import annotations

import tempfile
from pathlib import Path

from jupyter_client.manager import KernelManager

from course_staff.authoring.execute import listening_in

ROOT = Path(__file__).resolve().parents[1]


class Kernel:
    """Executes cells, and tells what they show; a front end may name each cell by its id."""

    def __init__(self) -> None:
        self.sockets = tempfile.TemporaryDirectory()
        self.manager = KernelManager(config=listening_in(self.sockets.name))
        self.manager.start_kernel(cwd=str(ROOT))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def start(self, code: str, id: str | None = None) -> str:
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        meta = {"cellId": id} if id else {}
        message = self.client.session.msg("execute_request", content, metadata=meta)
        self.client.shell_channel.send(message)
        return message["header"]["msg_id"]

    def finish(self, request: str) -> tuple[str, str | None]:
        """Everything that the cell shows, and its error's text or None."""
        shown, error = "", None
        while True:
            message = self.client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                shown += content["text"]
            elif kind == "execute_result":
                shown += content["data"]["text/plain"]
            elif kind == "error":
                error = "\n".join(content["traceback"])
            elif kind == "status" and content["execution_state"] == "idle":
                return shown, error

    def cell(self, code: str, id: str | None = None) -> tuple[str, str | None]:
        return self.finish(self.start(code, id))

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.sockets.cleanup()
