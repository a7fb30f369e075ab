"""The paper's theory on finite CMDPs, computed exactly (docs/theory.md)."""

from __future__ import annotations

from cupola.theory.cmdp import Cmdp, chain, check_policy, grid_world, make_cmdp
from cupola.theory.lp import Optimum, solve

__all__ = ["Cmdp", "Optimum", "chain", "check_policy", "grid_world", "make_cmdp", "solve"]
