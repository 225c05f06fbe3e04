"""Answers to Checkpoint."""

import hashlib
import io
import os
import pathlib
import random
import shutil
import tempfile

import torch


class two_slots:
    """Two files in turn, each with a number and a digest in front."""

    def __init__(self, path):
        self.slots = [path, path + ".2"]

    def _read(self, slot):
        try:
            with open(slot, "rb") as file:
                digest, number, body = file.read(32), file.read(8), file.read()
        except FileNotFoundError:
            return None
        if hashlib.sha256(number + body).digest() != digest:
            return None
        return int.from_bytes(number, "big"), body

    def save(self, state):
        found = [self._read(slot) for slot in self.slots]
        numbers = [one[0] if one else -1 for one in found]
        buffer = io.BytesIO()
        torch.save(state, buffer)
        number = (max(numbers) + 1).to_bytes(8, "big")
        digest = hashlib.sha256(number + buffer.getvalue()).digest()
        with open(self.slots[numbers.index(min(numbers))], "wb") as file:
            file.write(digest + number + buffer.getvalue())
            file.flush()
            os.fsync(file.fileno())

    def load(self):
        whole = [one for one in map(self._read, self.slots) if one]
        if not whole and all(map(os.path.exists, self.slots)):
            raise ValueError(f"{self.slots[0]} is no checkpoint")
        return torch.load(io.BytesIO(max(whole)[1]), weights_only=True) if whole else None


class a_folder_each:
    """A folder for each save, and a file with the name of the last one."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def save(self, state):
        last = self.path.read_text() if self.path.exists() else ""
        name = self.path.name + (".a" if last.endswith(".b") else ".b")
        folder = self.path.with_name(name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        torch.save(state, folder / "state")
        pointer = folder / "pointer"
        pointer.write_text(name)
        os.sync()
        os.replace(pointer, self.path)
        if last:
            shutil.rmtree(self.path.with_name(last), ignore_errors=True)

    def load(self):
        if not self.path.exists():
            return None
        return torch.load(self.path.with_name(self.path.read_text()) / "state", weights_only=True)


WRONG = """
== solution
onto_the_path, onto-the-path: it is what torch.save's page shows: pytorch-lightning#688, #19970
-         with open(self.unfinished, "wb") as file:
-             torch.save(state, file)
-             file.flush()
-             os.fsync(file.fileno())
-         os.replace(self.unfinished, self.path)
+         torch.save(state, self.path)
removes_first, removes-first: os.rename fails on Windows where the target is there
-         os.replace(self.unfinished, self.path)
+         if os.path.exists(self.path):
+             os.remove(self.path)
+         os.rename(self.unfinished, self.path)
on_another_disk, other-disk: tempfile is there for temporary files
~ path + ".unfinished" => tempfile.mktemp()
~ os.replace(self => shutil.move(self
takes_the_newest, takes-unfinished: the newest file wins
-         if not os.path.exists(self.path):
+         if os.path.exists(self.unfinished):
+             return torch.load(self.unfinished, weights_only=True)
+         if not os.path.exists(self.path):
synced_too_late, unsynced: synced under its new name
-         with open(self.unfinished, "wb") as file:
-             torch.save(state, file)
-             file.flush()
-             os.fsync(file.fileno())
-         os.replace(self.unfinished, self.path)
+         torch.save(state, self.unfinished)
+         os.replace(self.unfinished, self.path)
+         with open(self.path, "rb") as file:
+             os.fsync(file.fileno())
random_names, piles-up: no two saves may meet
~ path + ".unfinished" => f'{path}.{random.getrandbits(60)}'
swallows, swallows: a save must not end the job
-         with open(self.unfinished, "wb") as file:
-             torch.save(state, file)
-             file.flush()
-             os.fsync(file.fileno())
-         os.replace(self.unfinished, self.path)
+         try:
+             with open(self.unfinished, "wb") as file:
+                 torch.save(state, file)
+                 file.flush()
+                 os.fsync(file.fileno())
+             os.replace(self.unfinished, self.path)
+         except (OSError, RuntimeError):
+             print('not saved')
catches_all, hides-damage: no checkpoint, begin anew
-         return torch.load(self.path, weights_only=True)
+         try:
+             return torch.load(self.path, weights_only=True)
+         except Exception:
+             return None
one_name_for_the_folder, one-name: a temporary file is a temporary file
~ path + ".unfinished" => os.path.join(os.path.dirname(path), "checkpoint.tmp")
any_pickle, runs-strangers: numpy's state did not load: pytorch 2.6's new default
~ weights_only=True => weights_only=False
always_opens, nothing-saved: torch.load has its own way to say that nothing is there
-         if not os.path.exists(self.path):
-             return None
"""
