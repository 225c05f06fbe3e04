"""The processes of one answer, as the judge sees them: one slot for each rank, started when needed.

A slot is used for one play after another as long as it behaves. One that does not come back, says
what no rank says, or has to be given up in the middle is ended with everything that it has started,
and the next play gets a new one.
"""

from __future__ import annotations

import time
from typing import Any

from course_lib.grading import zygote
from course_lib.grading.frames import Ended, Malformed, Talk
from course_lib.grading.walls import Limits, running

START = 20.0  # seconds in which a slot has to be ready, on a busy machine, too
HOME = 2.0  # seconds in which one that was told that all is over has to come back


class Slot:
    """One rank's process."""

    def __init__(self, address: str, limits: Limits, setup: dict[str, Any]) -> None:
        self._life, sock = zygote.start_rank(address, limits)
        self._until = time.monotonic() + START
        self._talk = Talk(sock, self._patient)
        self.state = "idle"  # idle, playing, abandoned or ended
        self.why = ""  # it ended, in words for the instructor
        self.walls: list[str] = []
        try:
            self._talk.send(setup)
            self.walls = [str(w) for w in self._talk.receive()["walls"]]
            self.pid = int(zygote.answer(self._life, START)["pid"])
        except (Ended, Malformed, TimeoutError, KeyError, TypeError) as error:
            self.spoil(f"it did not start ({type(error).__name__})")
            raise Ended(self.why) from None

    def _patient(self) -> bool:
        return self._until is None or time.monotonic() < self._until

    def start(self, play: dict[str, Any]) -> None:
        """Begin a play. From here on it is the simulation that limits the time. One simulation
        may play a case more than once, each time from where the last one was given up."""
        if not self.home():
            raise Ended(self.why)
        self._until = None  # type: ignore[assignment]
        self.state = "playing"
        self.send(play)

    def send(self, message: dict[str, Any]) -> None:
        self._talk.send(message)

    def receive(self) -> dict[str, Any]:
        return self._talk.receive()

    def idle(self) -> None:
        self.state = "idle"

    def abandon(self) -> None:
        """The simulation is over: tell the rank, which is waiting for an answer."""
        if self.state != "playing":
            return
        self.state = "abandoned"
        try:
            self._talk.send({"over": 1})
        except Ended:
            self.spoil("")

    def spoil(self, why: str) -> None:
        """It is not to be used again."""
        if self.state == "ended":
            return
        self.state = "ended"
        told = zygote.answer(self._life, 0.5 if not why else 0.0)
        self.why = why or _in_words(told)
        self.close()

    def home(self) -> bool:
        """Whether it can be used again, after a play."""
        if self.state == "playing":
            self.spoil("it did not come back")
        if self.state == "abandoned":
            self._until = time.monotonic() + HOME
            try:
                while self._talk.receive().get("do") not in ("over", "done", "raised"):
                    if not self._patient():  # it may go on asking for ever
                        raise TimeoutError
                    self._talk.send({"over": 1})
                self.state = "idle"
            except (Ended, Malformed, TimeoutError):
                self.spoil("it did not come back")
        return self.state == "idle"

    def close(self) -> None:
        """End the process: its keeper sees the lifeline close."""
        self._life.close()
        self._talk.sock.close()


def _in_words(told: dict[str, Any]) -> str:
    why, code = told.get("why"), told.get("code")
    if why == "memory":
        return "it used more memory than allowed"
    if isinstance(code, int) and code < 0:
        return {
            -24: "it used more processor time than allowed",
            -25: "it wrote a larger file than allowed",
            -6: "it was aborted, in compiled code (signal 6)",
            -11: "it crashed, in compiled code (signal 11)",
        }.get(code, f"signal {-code} ended it")
    return f"it ended with exit code {code}" if isinstance(code, int) else "it ended"


class Runner:
    """All slots of one answer."""

    def __init__(self, address: str, limits: Limits, setup: dict[str, Any]) -> None:
        self._address, self._limits, self._setup = address, limits, setup
        self._slots: list[Slot] = []
        self.ended: list[str] = []  # why slots were given up
        self.walls: set[str] | None = None

    @staticmethod
    def standing() -> set[str]:
        """The walls that this system allows."""
        with zygote.Zygote() as started:
            runner = Runner(started.address, Limits(), {"name": "", "cells": []})
            try:
                runner.slots(1)
                return runner.walls or set()
            finally:
                runner.close()

    def slots(self, world: int) -> list[Slot]:
        """As many slots as this, all of them ready."""
        for number in range(world):
            if number < len(self._slots) and self._slots[number].home():
                continue
            fresh = Slot(self._address, self._limits, self._setup)
            self.walls = set(fresh.walls) if self.walls is None else self.walls & set(fresh.walls)
            if number < len(self._slots):
                self._slots[number] = fresh
            else:
                self._slots.append(fresh)
        return self._slots[:world]

    def running(self) -> int:
        """How many threads its ranks have that compute, or want to."""
        return sum(running(slot.pid) for slot in self._slots)

    def settle(self) -> list[str]:
        """After a play: give up what does not come back; why, for each that was."""
        gone = []
        for slot in self._slots:
            before = slot.state
            if before != "idle" and not slot.home():
                gone.append(slot.why)
        self.ended += gone
        self._slots = [s for s in self._slots if s.state == "idle"]
        return gone

    def close(self) -> None:
        for slot in self._slots:
            slot.close()
        self._slots = []
