"""What a recognizer proposes."""

import attrs


@attrs.frozen
class Match:
    """Instructions that one site could replace.

    Attributes:
        indices: the instructions that make up the idiom, ascending. Others may stand between them: flowshunt moves
            those out of the way where it finds them independent, else there is no site.
        payload: of the site.
        at: for an operation that replaces nothing: the instruction that the site is put before; else -1.
    """

    indices: tuple[int, ...]
    payload: int
    at: int = -1
