"""The type checker behind the shape checks: an int will do for a float, as it does for static checkers."""

from beartype import BeartypeConf, beartype

typechecker = beartype(conf=BeartypeConf(is_pep484_tower=True))
