"""Gymnasium, both ways.

In: `task.py` makes a cupola task of any Gymnasium environment. Out: `register.py` registers every
cupola task with Gymnasium. docs/tasks/gymnasium.md says how to use both.
"""
