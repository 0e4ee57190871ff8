"""Results of runs for tests of tables and reports."""


def run_result(error=0.1, **fields):
    """The result of a run with this error; `fields` replace defaults."""
    return {
        "error": error,
        "nll": 0.3,
        "ece": 0.02,
        "seconds_fit": 4.0,
        "seconds_predict": 1.0,
        "peak_memory_gb": 0.5,
        "test": 100,
        "differs": ["other data"],
        "note": {},
    } | fields
