"""Text of others for a terminal: file names and rule messages hold what they like, and must not steer the terminal."""


def plain(text: str) -> str:
    """The text with what can't be printed (escape sequences, controls, bytes that are no text) written out."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
