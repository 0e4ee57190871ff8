import gzip

import numpy as np
import pytest

from gcgp.datasets.images import load_digits, load_mnist, read_idx


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">i4").tobytes()
    content = header + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture
def mnist(tmp_path):
    rng = np.random.default_rng(0)
    for part, count in (("train", 5), ("t10k", 3)):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", rng.integers(0, 256, (count, 4, 4)))
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", np.arange(count))
    return tmp_path


def test_digits_are_real_and_balanced():
    digits = load_digits()
    assert digits.images.shape == (5000, 28, 28)
    assert np.bincount(digits.labels).tolist() == [500] * 10
    assert digits.images.min() == 0
    assert digits.images.max() == 1


def test_mnist_from_a_folder_or_the_variable(mnist, monkeypatch):
    train, test = load_mnist(mnist)
    assert (len(train), len(test)) == (5, 3)
    assert train.images.dtype == np.float32
    assert 0 <= train.images.min() <= train.images.max() <= 1
    monkeypatch.setenv("GCGP_DATA", str(mnist))
    np.testing.assert_array_equal(load_mnist()[0].images, train.images)
    (mnist / "mnist").mkdir()
    for file in list(mnist.glob("*ubyte*")):
        file.rename(mnist / "mnist" / file.name)
    np.testing.assert_array_equal(load_mnist(mnist)[0].images, train.images)


def test_no_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("GCGP_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="GCGP_DATA is not set"):
        load_mnist()
    with pytest.raises(FileNotFoundError, match="no train-images-idx3-ubyte"):
        load_mnist(tmp_path)


def test_bad_files(mnist):
    path = mnist / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="truncated"):
        read_idx(path)
    path.write_bytes(b"PNG")
    with pytest.raises(ValueError, match="not an idx file"):
        read_idx(path)
    write_idx(path, np.arange(2))
    with pytest.raises(ValueError, match="3 t10k images but 2 labels"):
        load_mnist(mnist)
