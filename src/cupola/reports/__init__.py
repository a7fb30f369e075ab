"""Reports: what the runs of a sweep, or any runs, have to say.

run directories or an exported file of curves -> results -> statistics -> tables, charts -> page
"""
