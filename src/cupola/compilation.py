"""Compiled functions, kept between processes."""

from __future__ import annotations

import os
import warnings
from pathlib import Path


def warm_up_cache() -> None:
    """Keep compiled functions between runs, so that a second start is quick."""
    import jax

    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cupola" / "jax"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # JAX does not write entries atomically. Who reads one that another process is still writing
    # compiles by itself: nothing that a user should be warned of.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
