"""Fixtures of mesh tests."""

import pytest


@pytest.fixture
def write(tmp_path):
    """Write a file of this name and content, and return its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
