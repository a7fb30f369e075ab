"""What kernels.c and Python both write down: the structures, and the bits of Safety Gym's costs."""

import ctypes
import os
import shlex
import shutil
import subprocess

import pytest

from cupola import native
from cupola.tasks.safety_gym.player import PARTS

NAMES = ("Field", "Physics", "Policy", "Rollout", "Clock", "Robot", "World")
KINDS = {native.PTR: "pointer", native.INT: "int64", native.NUM: "double"}
CASES = 'int64_t: "int64", double: "double", Clock: "Clock", default: "pointer"'


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Lines that a C program prints which has all of kernels.c in it."""
    names = os.environ.get("CC", "cc"), "gcc", "clang"
    compiler = next((shlex.split(n) for n in names if n and shutil.which(shlex.split(n)[0])), None)
    if compiler is None:
        pytest.skip("there is no C compiler")

    def run(statements: list[str]) -> list[str]:
        folder = tmp_path_factory.mktemp("layout")
        source, program = folder / "layout.c", folder / "layout"
        lines = [
            "#include <stddef.h>",
            "#include <stdio.h>",
            f'#include "{native.SOURCE}"',
            "int main(void) {",
            *statements,
            "}",
        ]
        source.write_text("\n".join(lines))
        subprocess.run([*compiler, "-O0", "-o", program, source, "-lm"], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()

    return run


def test_structures_are_those_of_the_c_source_field_by_field(ask):
    asked, expected = [], []
    for name in NAMES:
        ours = getattr(native, name)
        asked.append(f'printf("%zu\\n", sizeof({name}));')
        expected.append(str(ctypes.sizeof(ours)))
        for field, kind in ours._fields_:
            theirs = field.rstrip("_")  # `from` is a keyword of Python
            what = f"_Generic((({name} *)0)->{theirs}, {CASES})"
            asked.append(f'printf("%zu:%s\\n", offsetof({name}, {theirs}), {what});')
            expected.append(f"{getattr(ours, field).offset}:{KINDS.get(kind, 'Clock')}")
    assert ask(asked) == expected


def test_the_parts_of_the_cost_are_the_same_bits(ask):
    asked = [f'printf("%d\\n", {name.upper()});' for name in PARTS]
    assert ask(asked) == [str(bit) for bit in PARTS.values()]
    assert sorted(PARTS.values()) == [1 << k for k in range(len(PARTS))]
