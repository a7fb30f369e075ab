"""Experiments: grids of runs on this machine or on a cluster; statistics, tables, figures, reports.

experiment file -> grid -> sweep directory <- engine (local, Ray) -> workers, one a cell
sweep directory -> results -> statistics -> tables, figures, report
"""
