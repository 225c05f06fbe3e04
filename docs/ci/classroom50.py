"""classroom50's autograder: grades the student's checkout, in which it runs, and says so in
./result.json. Put it at CLASSROOM/autograders/ASSIGNMENT/autograder.py.

COURSE is the course with its environment, on a runner of your own. A workflow in a student's
repository is the student's to change: what that runner holds, they can read. So use it for
feedback, or where solutions are no secret; marks that count are made from your own repository.
"""

import datetime
import json
import math
import os
import subprocess
import tempfile
from pathlib import Path

COURSE = Path(os.environ.get("COURSE", "/srv/course"))

with tempfile.TemporaryDirectory() as out:
    policy = COURSE / "class" / "policy.toml"
    work = Path("work" if Path("work").is_dir() else ".").resolve()  # a release's answers
    subprocess.run(
        [COURSE / ".venv/bin/python", "-m", "course_lib", "grade", work, "--out", out,
         *(["--policy", policy] if policy.exists() else [])],
        cwd=COURSE, env={"PATH": os.environ["PATH"], "HOME": out}, check=True,
    )  # fmt: skip
    graded = [json.loads(f.read_text()) for f in sorted(Path(out, "results").glob("*.json"))]

# Whole points are asked for. They are rounded down: nothing is promised that is not given.
tests = [
    {"test-name": test["name"], "passed": test["status"] == "passed", "output": test["output"],
     "score": math.floor(test["score"]), "max-score": math.floor(test["max_score"])}
    for one in graded for test in one["tests"]
]  # fmt: skip
given = os.environ
result = {
    "schema": "classroom50/result/v1",
    "classroom": given["CLASSROOM"],
    "assignment": given["ASSIGNMENT"],
    "assignment_type": given.get("ASSIGNMENT_TYPE", "individual"),
    "owner": given["OWNER"],
    "submission": given["SUBMISSION_TAG"],
    "commit": given["COMMIT_URL"],
    "release": given["RELEASE_URL"],
    "review": given.get("REVIEW_URL") or given["COMMIT_URL"],
    "datetime": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "score": sum(test["score"] for test in tests),
    "max-score": sum(test["max-score"] for test in tests),
    "tests": tests,
}
Path("result.json").write_text(json.dumps(result, indent=1))
