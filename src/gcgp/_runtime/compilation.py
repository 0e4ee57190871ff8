"""Compilation of loops, which takes half a minute on the first use, shown in a progress bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MESSAGE = "compiling loops (first use only)"


@contextmanager
def compilation_shown(bar: Any) -> Iterator[None]:
    """Show in a `tqdm` bar while Numba compiles; loops that are loaded from its cache are not shown."""
    from numba.core.event import Listener, install_listener

    class Shown(Listener):
        """Nested compilations count as one."""

        depth = 0

        def on_start(self, event: Any) -> None:
            self.depth += 1
            if self.depth == 1:
                bar.set_postfix_str(MESSAGE)

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0:
                bar.set_postfix_str("")

    with install_listener("numba:compile", Shown()):
        yield
