"""One file per command: its arguments, what it does, and the tables that it prints.

Each has `run(args)`, which the command line calls. What is slow to import (JAX, the tasks) is
imported where it is used, so that `--help` is quick.
"""
