"""The kinds of attacks: one file each, and this folder is the registry.

A file is a kind if it has

- a docstring: its first line is shown;
- `SHARE`: its part of the time of a campaign, relative to the others;
- `SECONDS`: what takes longer hangs;
- `WARM`: whether it runs cupola within the process of the attack (`programs.call`), which is quick,
  or in children only (`programs.fork`);
- `COUNTS`: what a try is, for the totals: a kill, a mutant, a command or an attack;
- `ALONE = True`, where its tries come one at a time, all in one process;
- `prepare(library)`, where it needs references: they are trained before the clock starts (a warm
  kind cannot train them later);
- `attack(random, place)`: one try; raises `Failed` where cupola did not survive.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def load() -> dict[str, ModuleType]:
    """All kinds, by name."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in sorted(found)}
    return {name: module for name, module in modules.items() if hasattr(module, "attack")}
