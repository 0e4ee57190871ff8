"""The comparison with GPflow accepts other files of its format."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from slow_svgp import svgp_reference

HERE = Path(__file__).parent


def test_a_file_of_other_sizes_and_another_scale(tmp_path):
    """Five images of 9 × 8 pixels, patches of 3 × 3 pixels, and kernel values a thousand times larger."""
    np.savez(tmp_path / "reference.npz", **svgp_reference(5, scale=1e3))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "test_gpflow_reference.py"]
    environment = os.environ | {"GCGP_GPFLOW_REFERENCE": str(tmp_path / "reference.npz")}
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


def test_the_bundled_file_has_the_same_fields():
    with np.load(HERE / "data" / "gpflow_convolutional_svgp.npz") as file:
        assert set(svgp_reference(0)) == set(file)
