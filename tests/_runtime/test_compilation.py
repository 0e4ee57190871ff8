"""The progress bar while loops are compiled."""

from numba import njit

from gcgp._runtime.compilation import MESSAGE, compilation_shown


class Bar:
    def __init__(self):
        self.texts = []

    def set_postfix_str(self, text):
        self.texts.append(text)


def test_compilation_is_shown_once():
    @njit
    def inner(x):
        return x + 1

    @njit
    def outer(x):
        return inner(x) * 2

    bar = Bar()
    with compilation_shown(bar):
        assert outer(1) == 4
        outer(2)  # compiled already
    outer(1.0)  # not shown any more
    assert bar.texts == [MESSAGE, ""]
