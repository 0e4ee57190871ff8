"""scikit-learn estimators. Enters: signals and labels. Leaves: predictions, their uncertainty, and evidence.

`fit` is the sequence of a fit, `base` is shared by classifier and regressor, `persistence` saves and loads.
"""
