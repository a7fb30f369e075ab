"""A trained policy as one file for programs that know nothing of cupola: ONNX, or numpy arrays.

Both hold all that `Policy.predict` does to a flat observation, deterministically: the choice of
columns, normalisation, clipping, the network, the bounds of the actions (docs/export.md).
"""
