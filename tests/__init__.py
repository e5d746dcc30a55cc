"""Tests of all parts; conftest.py has what all of them share."""

import os
import sys

# Some containers set it: each process of a test run, and each program that it starts, would then
# compile every module anew. The environment is for those processes, the flag is for this one.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
