"""What docs/ebpf-running.md shows is so."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "ebpf-running.md"


def test_the_python_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(example, "docs/ebpf-running.md", "exec"), {})
