"""Run directories: config, metrics, timings, TensorBoard events, checkpoints."""
