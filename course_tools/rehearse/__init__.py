"""``rehearse`` plays a script for GPUs, unchanged, on modelled ones, and says how it would end.

    python -m course_lib.rehearse --nodes 2 --gpus 8 train.py

rehearse_command.py has the command, step_cost.py what a step costs (``--gpu h100``).
"""
