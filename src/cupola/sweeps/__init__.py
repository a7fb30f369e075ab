"""Sweeps: grids of runs on this machine or on a cluster.

experiment file -> grid -> cells -> sweep directory <- engine (local, Ray) -> workers, one per cell
"""
