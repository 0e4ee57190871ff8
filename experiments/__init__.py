"""The tables and figures of the paper, baseline networks and the demo; `python -m experiments --help`.

`tables` defines what each table compares, `models` and `networks` what is fitted, `data` on which data.
`runs` executes and saves runs, `reporting` formats them, and `figures` draws.
"""
