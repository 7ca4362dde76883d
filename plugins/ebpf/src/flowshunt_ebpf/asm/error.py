"""The error of both assemblers: what, and the line and column where it stands."""

from typing import Final

from flowshunt.errors import InputError

_MOST_SHOWN: Final = 240
"""Characters of an error's text: a word that it quotes may be as long as the file."""


class AssemblyError(InputError):
    """Text that can't be assembled. Line and column count from 1."""

    def __init__(self, what: str, line: int, column: int, way_out: str = "", file: str = "") -> None:
        if len(what) > _MOST_SHOWN:
            what = f"{what[:_MOST_SHOWN]}..."
        self.line = line
        self.column = column
        self.file = file
        super().__init__(what, f"{file or 'line'}{':' if file else ' '}{line}:{column}", way_out)
