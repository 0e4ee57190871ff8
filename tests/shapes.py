"""The type checker of the shape checks, which accepts an int for a float as static checkers do."""

from beartype import BeartypeConf, beartype

typechecker = beartype(conf=BeartypeConf(is_pep484_tower=True))
