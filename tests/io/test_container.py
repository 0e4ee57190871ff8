"""The file container: round trips, damage, foreign files and failed writes."""

import json
import pickle
import re
import struct

import pytest
import torch
from safetensors.torch import save_file

from gcgp.io.container import read_container, write_container

DESCRIPTION = {"gcgp": "0", "steps": [1, None, "a"]}
TENSORS = {"a": torch.arange(300.0).reshape(3, 100), "b.c": torch.tensor(7, dtype=torch.int64)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gcgp"


@pytest.fixture
def saved(path):
    write_container(path, DESCRIPTION, TENSORS)
    return path


def test_round_trip(saved):
    description, tensors = read_container(saved)
    assert description == DESCRIPTION
    assert tensors.keys() == TENSORS.keys()
    for key, tensor in tensors.items():
        assert tensor.dtype == TENSORS[key].dtype
        assert torch.equal(tensor, TENSORS[key])


def test_tensors_that_share_memory(path):
    write_container(path, {}, {"a": TENSORS["a"], "b": TENSORS["a"], "c": TENSORS["a"].T})
    assert torch.equal(read_container(path)[1]["c"], TENSORS["a"].T)


def test_truncated_files(saved):
    content = saved.read_bytes()
    for length in [0, 1, 7, 8, 9, 100, len(content) // 2, len(content) - 1]:
        saved.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"model\.gcgp: not a gcgp model file, or truncated or damaged"):
            read_container(saved)


def test_any_flipped_byte(saved):
    content = bytearray(saved.read_bytes())
    header = struct.unpack("<Q", content[:8])[0]
    for position in [0, 8, 8 + header // 2, 8 + header, 8 + header + 1000, len(content) - 1]:
        damaged = content.copy()
        damaged[position] ^= 0x55
        saved.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"model\.gcgp: .*(damaged|not a gcgp|format)"):
            read_container(saved)


@pytest.mark.parametrize("version", ["4", "99"])
def test_other_format_versions(saved, version):
    content = saved.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"]["version"] = version
    text = json.dumps(header).encode()
    saved.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    with pytest.raises(ValueError, match=rf"model format {version}, but gcgp .* reads 8"):
        read_container(saved)


def test_foreign_files(path):
    save_file({"x": torch.zeros(3)}, str(path))
    with pytest.raises(ValueError, match="a safetensors file, but not a gcgp model"):
        read_container(path)
    path.write_text("hello")
    with pytest.raises(ValueError, match="not a gcgp model file"):
        read_container(path)
    with pytest.raises(FileNotFoundError, match="no model file at"):
        read_container(path.parent / "nowhere")


def test_a_pickle_is_refused_and_not_executed(path):
    class Trap:
        def __reduce__(self):
            return (path.with_suffix(".executed").write_text, ("",))

    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="not a gcgp model file"):
        read_container(path)
    assert not path.with_suffix(".executed").exists()


def test_a_failed_write_leaves_the_old_file(saved, monkeypatch):
    def fail(*args):
        raise OSError("no space left on device")

    before = saved.read_bytes()
    monkeypatch.setattr("gcgp.io.container.save_file", fail)
    with pytest.raises(OSError, match="no space left"):
        write_container(saved, {}, {})
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_a_missing_folder_is_reported_with_the_path(path):
    target = path.parent / "no" / "model.gcgp"
    with pytest.raises(FileNotFoundError, match=re.escape(str(target))):
        write_container(target, DESCRIPTION, TENSORS)
