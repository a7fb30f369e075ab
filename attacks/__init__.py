"""Attacks on runs, sweeps and the command line: what must not happen, tried thousands of times.

    python -m attacks --minutes 60 --seed 0          # a campaign over all kinds
    python -m attacks --only kills --seed 7 --tries 1  # one try again

docs/attacks.md says how to read the table and how to add a kind.
"""
