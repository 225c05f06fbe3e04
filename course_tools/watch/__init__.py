"""Any torchrun job, explained: ``torchrun … -m course_lib.watch train.py …``.

Each process that torchrun starts forks once. The child is the rank: it runs the script unchanged
and writes down what it calls. The parent waits for it and ends as it has ended. Meanwhile the first
parent of a machine reads what all ranks have written, and says what ``run`` would say.

    torchrun ── parent of rank 0: the reader ── rank 0 ──> FOLDER/restart-0/rank-0.log
             ── parent of rank 1             ── rank 1 ──> FOLDER/restart-0/rank-1.log
"""
