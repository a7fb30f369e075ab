"""Type the commands of the tutorials into an empty folder, and keep what they print in output/.

    .venv/bin/python docs/tutorials/record.py [PAGE ...]

The pages quote it by hand. All of them take about ten minutes on two cores.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent.resolve()
BLOCK = re.compile(r'^```(python|sh|toml)(?: title="(.+?)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)


def record(page: str) -> str:
    said = []
    with tempfile.TemporaryDirectory() as folder:
        for block in BLOCK.finditer((HERE / f"{page}.md").read_text()):
            language, title, inside = block.groups()
            if title:
                Path(folder, title).write_text(inside)
            for line in inside.splitlines() if language == "sh" else ():
                said += [f"$ {line}", typed(line, folder)]
    return "\n".join(said)


def typed(line: str, folder: str) -> str:
    """What a command of cupola prints in a terminal of a hundred columns."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        shlex.split(line),
        cwd=folder,
        env=os.environ | {"COLUMNS": "100", "PATH": programs},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return "\n".join(text.rstrip() for text in done.stdout.splitlines()) + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:] or ("first-run", "two-costs", "comparing", "diagnosing"):
        (HERE / "output" / f"{name}.txt").write_text(record(name))
        print(name)
