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


WRITES = """        with open(self.unfinished, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.unfinished, self.path)
"""
WRONG = {
    "onto_the_path": (
        "solution",
        "12.onto-the-path",
        "it is what torch.save's page shows: pytorch-lightning#688, #19970",
        (WRITES, "        torch.save(state, self.path)\n"),
    ),
    "removes_first": (
        "solution",
        "12.removes-first",
        "os.rename fails on Windows where the target is there",
        (
            "        os.replace(self.unfinished, self.path)\n",
            "        if os.path.exists(self.path):\n            os.remove(self.path)\n"
            "        os.rename(self.unfinished, self.path)\n",
        ),
    ),
    "a_copy_first": (
        "solution",
        "12.second-death",
        "a backup, and then the old habit",
        (
            WRITES,
            "        if os.path.exists(self.path):\n        "
            "    shutil.copy(self.path, self.path + '.bak')\n"
            "        torch.save(state, self.path)\n",
        ),
        (
            "        return torch.load(self.path, weights_only=True)",
            "        try:\n            return torch.load(self.path, weights_only=True)\n"
            "        except Exception:\n            if not "
            "os.path.exists(self.path + '.bak'):\n                return None\n"
            "            return torch.load(self.path + '.bak', weights_only=True)",
        ),
    ),
    "on_another_disk": (
        "solution",
        "12.other-disk",
        "tempfile is there for temporary files",
        ('path + ".unfinished"', "tempfile.mktemp()"),
        ("os.replace(self", "shutil.move(self"),
    ),
    "takes_the_newest": (
        "solution",
        "12.takes-unfinished",
        "the newest file wins",
        (
            "        if not os.path.exists(self.path):\n",
            "        if os.path.exists(self.unfinished):\n           "
            " return torch.load(self.unfinished, weights_only=True)\n"
            "        if not os.path.exists(self.path):\n",
        ),
    ),
    "synced_too_late": (
        "solution",
        "12.unsynced",
        "synced under its new name",
        (
            WRITES,
            """        torch.save(state, self.unfinished)
        os.replace(self.unfinished, self.path)
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())
""",
        ),
    ),
    "random_names": (
        "solution",
        "12.piles-up",
        "no two saves may meet",
        ('path + ".unfinished"', "f'{path}.{random.getrandbits(60)}'"),
    ),
    "swallows": (
        "solution",
        "12.swallows",
        "a save must not end the job",
        (
            WRITES,
            "        try:\n"
            + WRITES.replace("        ", "            ")
            + "        except (OSError, RuntimeError):\n            print('not saved')\n",
        ),
    ),
    "catches_all": (
        "solution",
        "12.hides-damage",
        "no checkpoint, begin anew",
        (
            "        return torch.load(self.path, weights_only=True)",
            "        try:\n            return torch.load(self.path, weights_only=True)\n"
            "        except Exception:\n            return None",
        ),
    ),
    "any_pickle": (
        "solution",
        "12.runs-strangers",
        "numpy's state did not load: pytorch 2.6's new default",
        ("weights_only=True", "weights_only=False"),
    ),
    "exclusively": (
        "solution",
        "12.next-save",
        "mode x refuses to write over another's file",
        ('self.unfinished, "wb"', 'self.unfinished, "xb"'),
    ),
    "clears_what_looks_temporary": (
        "solution",
        "12.neighbours",
        "what ends so is a leftover, one thinks",
        (
            WRITES,
            "        for one in pathlib.Path(self.path).parent.glob('*.unfinished'):\n"
            "            one.unlink()\n" + WRITES,
        ),
    ),
    "remembers": (
        "solution",
        "12.remembers",
        "why read what was written a moment ago",
        ("        os.replace(self", "        self.last = state\n        os.replace(self"),
        (
            "        if not os.path.exists(self.path):\n",
            "        if hasattr(self, 'last'):\n            return self.last\n"
            "        if not os.path.exists(self.path):\n",
        ),
    ),
    "always_opens": (
        "solution",
        "12.nothing-saved",
        "torch.load has its own way to say that nothing is there",
        ("        if not os.path.exists(self.path):\n            return None\n", ""),
    ),
    "one_name_for_the_folder": (
        "solution",
        "12.one-name",
        "a temporary file is a temporary file",
        ('path + ".unfinished"', 'os.path.join(os.path.dirname(path), "checkpoint.tmp")'),
    ),
    "digest_named_later": (
        "solution",
        "12.lost",
        "two files get their names in one step each, and not in one step together",
        (
            "        os.replace(self.unfinished, self.path)\n",
            "        with open(self.unfinished, 'rb') as file:\n"
            "            digest = hashlib.sha256(file.read()).hexdigest()\n"
            "        with open(self.path + '.sum', 'w') as file:\n"
            "            file.write(digest)\n            file.flush()\n"
            "            os.fsync(file.fileno())\n"
            "        os.replace(self.unfinished, self.path)\n"
            "        os.replace(self.path + '.sum', self.path + '.sha256')\n",
        ),
        (
            "            return None\n",
            "            return None\n"
            "        digest = hashlib.sha256(open(self.path, 'rb').read()).hexdigest()\n"
            "        if open(self.path + '.sha256').read() != digest:\n"
            "            raise ValueError('spoilt')\n",
        ),
    ),
}
