"""scikit-learn estimators. Enters: signals and labels. Leaves: predictions, their uncertainty, and evidence.

`fit` is the sequence of a fit, `base` what classifier and regressor share, `persistence` writes and reads models.
"""
