"""From spans and logs to tool calls: each dialect says how to recognise and read what is one.

A dialect is a module here that defines ``DIALECT``; adding one is adding a file. It is keyed on
attributes, never on the name or version of a package.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from toolverdict.scoring.dialects.dialect import Dialect


@cache
def dialects() -> tuple[Dialect, ...]:
    """All dialects, in the order in which they are asked for a field."""
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    found = [module.DIALECT for module in modules if hasattr(module, "DIALECT")]
    return tuple(sorted(found, key=lambda dialect: (dialect.rank, dialect.name)))
