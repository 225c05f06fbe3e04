"""Every number of lesson 17's table is what its programs give today, the mistakes' as well."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from soak_ranks_common import report

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
from record_plans import TABLE, record_all, record_memory, record_step

RECORD = {"steps": record_step, "memory": record_memory, "clusters": record_all}
RECORDED = json.loads(TABLE.read_text())


@pytest.mark.parametrize("part", RECORD)
def test_the_table_is_recorded_anew(part: str) -> None:
    for entry in RECORDED[part]:
        assert_alike(json.loads(json.dumps(RECORD[part](**entry["given"]))), entry)
    report(f"capstone-{part}", entries=len(RECORDED[part]))


def test_another_number_is_seen() -> None:
    entry = RECORDED["steps"][3]
    slower = record_step(**entry["given"] | {"plan": entry["given"]["plan"] | {"m": 2}})
    with pytest.raises(AssertionError):
        assert_alike(slower | {"given": entry["given"]}, entry)


def assert_alike(new: Any, old: Any) -> None:
    if isinstance(old, dict):
        assert new.keys() == old.keys()
        for name in old:
            assert_alike(new[name], old[name])
    elif isinstance(old, list):
        assert len(new) == len(old)
        for one, other in zip(new, old, strict=True):
            assert_alike(one, other)
    else:
        assert new == old or new == pytest.approx(old, rel=1e-6)
