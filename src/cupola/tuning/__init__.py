"""Tuning: search spaces in an experiment file, trials that are cells of a sweep, the best setting.

Only `sampler` knows of Optuna, which keeps no file: tuning.json holds all that a study knows.
"""
