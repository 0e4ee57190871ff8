"""Random hostile files and inputs: no crash, hang, NaN or unclear error (`python -m benchmarks.fuzz`)."""
