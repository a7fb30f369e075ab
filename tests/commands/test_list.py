"""`cupola list`."""

import re

from cupola.algos import names as algorithm_names
from cupola.tasks import specs


def test_list_names_everything(command):
    status, out, err = command("list")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    for name in algorithm_names():
        assert any(re.match(rf"\s*{name}\s.*paper", line) for line in lines), name
    for name, spec in specs().items():
        row = next(line for line in lines if re.search(rf"[│ ]{re.escape(name)} ", line))
        cells = [cell.strip() for cell in row.split("│")]
        assert [str(spec.obs_size), str(spec.act_size)] == cells[2:4]
        for cost in spec.costs:
            assert cost.name in row
            if cost.limit is not None:
                assert f"{cost.name} <= {cost.limit:g}" in row
                assert ("discounted" in row) == cost.discounted
