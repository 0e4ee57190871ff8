"""Datasets. Input: folders of the user, or a random seed. Output: images or meshes with their labels."""

from gcgp.datasets.bodies import Bodies, articulated_bodies
from gcgp.datasets.images import Images, load_digits, load_mnist
from gcgp.datasets.mesh_folders import FaustMeshes, LabeledMeshes, load_faust, load_mesh_folder

__all__ = [
    "Bodies",
    "FaustMeshes",
    "Images",
    "LabeledMeshes",
    "articulated_bodies",
    "load_digits",
    "load_faust",
    "load_mesh_folder",
    "load_mnist",
]
