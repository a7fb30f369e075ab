"""The live board: a local web page of the runs below a directory. Nothing here imports JAX."""
