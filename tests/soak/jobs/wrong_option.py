"""argparse refuses an option, and ends with 2."""

import argparse

import torch.distributed as dist

parser = argparse.ArgumentParser(prog="train.py")
parser.add_argument("--epochs", type=int, required=True)
options = parser.parse_args()
dist.init_process_group("gloo")
