"""Model files. In: objects below the estimators. Out: their JSON descriptions and tensors.

Loading never executes code: a file names classes that are already imported, and every value is checked.
"""
