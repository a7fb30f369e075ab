"""JAX at its start: whether it finds a device; compiled functions, kept between processes."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from cupola.errors import CupolaError


def warm_up_cache() -> None:
    """Start JAX, and keep compiled functions between runs, so that a second start is quick."""
    import jax

    try:
        jax.devices()
    except RuntimeError as error:  # JAX_PLATFORMS names something that is not there
        raise CupolaError(f"JAX does not start: {error}") from None
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cupola" / "jax"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # JAX does not write entries atomically. Who reads one that another process is still writing
    # compiles by itself: nothing that a user should be warned of.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
