"""What docs/ebpf.md shows is so."""

import re
from pathlib import Path

from flowshunt_ebpf.asm import Form, assemble

PAGE = (Path(__file__).parents[3] / "docs" / "ebpf.md").read_text()


def test_the_python_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "docs/ebpf.md", "exec"), {})


def test_every_row_of_the_table_assembles_to_the_same_instructions():
    rows = re.findall(r"^\| ([a-z0-9, -]+) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    shown = 0
    for title, *cells in rows:
        if title == "anything":
            continue
        instructions = []
        for form, cell in zip((Form.C, Form.MNEMONIC), cells, strict=True):
            found = []
            for text in re.findall(r"`([^`]+)`", cell):
                frame = f".map flows hash\n.map .rodata array\n{text}\nout: exit\nleaf: exit\neach: exit"
                found.append(assemble(frame, form=form).instructions[0])
                shown += 1
            instructions.append(found)
        assert set(instructions[0]) <= set(instructions[1]) or set(instructions[1]) <= set(instructions[0]), title
    assert shown > 40


def test_the_directives_assemble():
    lines = PAGE.split("Directives say what instructions can't:")[1].split("## Objects")[0].split("\n")
    text = "\n".join(re.sub(r"  +(or|the next) .*", "", line) for line in lines if line.startswith("    ."))
    program = assemble(text + "\nexit")
    assert [m.name for m in program.maps] == ["flows", "outer"]
    assert program.functions[0].name == "leaf"
