"""Choosing what the user did not specify. Enters: options and training signals. Leaves: terms of a model.

`term_specs` derives terms from the data, `trial` scores a model on trial signals, `lengthscales` searches,
`learning` optimizes with gradients.
"""
