"""Run directories: config, metrics, timings, checkpoints; and sinks that metrics also go to."""
