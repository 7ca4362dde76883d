"""The error of the object loader: the object, the place in it, what is wrong, and the way out."""

from flowshunt.errors import InputError


class ObjectError(InputError):
    """An object, or a part of it, that can't be used. `where` says the file and the section, symbol or relocation."""
