"""What people touch. Enters: their data. Leaves: predictions, probabilities, evidence, files and pictures."""
