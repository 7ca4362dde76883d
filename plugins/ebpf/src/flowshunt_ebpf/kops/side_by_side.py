"""A program before and after, instruction by instruction, with the machine code of its sites."""

from difflib import SequenceMatcher
from itertools import zip_longest

import attrs

from flowshunt_ebpf.asm import instruction_texts
from flowshunt_ebpf.kops.optimize import Optimized
from flowshunt_ebpf.native.listing import code_text


@attrs.frozen
class Row:
    """One line of a listing.

    Attributes:
        before, after: an instruction's index and text; None where the side has none.
        site: the operation whose site the right side belongs to; "".
        native: machine code, where the right side starts a site.
    """

    before: tuple[int, str] | None
    after: tuple[int, str] | None
    site: str = ""
    native: str = ""


def side_by_side(optimized: Optimized, *, around: int | None = 2) -> list[Row]:
    """The original program beside the lowered one with its sites.

    `around`: only rows that differ or belong to sites, and so many on either side of them; None: all.
    """
    left, right = instruction_texts(optimized.original), instruction_texts(optimized.program)
    site_of: dict[int, str] = {}
    native: dict[int, str] = {}
    for site in optimized.program.sites:
        site_of.update(dict.fromkeys(range(site.start, site.end), site.operation))
        form = site.form(optimized.program.instructions, optimized.target.architecture, optimized.target.features)
        if form is not None:
            native[site.start] = "; ".join(code_text(form.code, form.architecture))
    rows: list[Row] = []
    plain = (_plain(left), _plain(right))
    for kind, a, b, c, d in SequenceMatcher(None, *plain, autojunk=False).get_opcodes():
        pairs = zip(range(a, b), range(c, d), strict=True) if kind == "equal" else zip_longest(range(a, b), range(c, d))
        for one, other in pairs:
            rows.append(
                Row(
                    None if one is None else (one, left[one]),
                    None if other is None else (other, right[other]),
                    "" if other is None else site_of.get(other, ""),
                    "" if other is None else native.get(other, ""),
                )
            )
    if around is None:
        return rows
    told = [bool(row.site) or row.before is None or row.after is None or _without_labels(row) for row in rows]
    return [row for at, row in enumerate(rows) if any(told[max(0, at - around) : at + around + 1])]


def _without_labels(row: Row) -> bool:
    assert row.before is not None and row.after is not None
    return _plain([row.before[1]]) != _plain([row.after[1]])


def _plain(texts: list[str]) -> list[str]:
    """Texts without the targets of jumps, which move with the instructions."""
    return [text.split(" goto ")[0] for text in texts]
