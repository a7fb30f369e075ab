"""Why a run learns as it does, and why a limit is not held: measured at one of its checkpoints.

`diagnose` is the whole of it. docs/diagnose.md says what every number means.
"""
