"""The error of both assemblers: what, and the line and column where it stands."""

from flowshunt.errors import InputError


class AssemblyError(InputError):
    """Text that can't be assembled. Line and column count from 1."""

    def __init__(self, what: str, line: int, column: int, way_out: str = "", file: str = "") -> None:
        self.line = line
        self.column = column
        self.file = file
        super().__init__(what, f"{file or 'line'}{':' if file else ' '}{line}:{column}", way_out)
