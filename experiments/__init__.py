"""The tables and figures of the paper, baseline networks and the demo; `python -m experiments --help`.

`tables` defines what each table compares; `models`, `networks`, `image_networks` and `shape_baselines` what
is fitted; `data`, `few_labels`, `graph_datasets` and `superpixel_folder` on which data.
`runs` executes and saves runs, `reporting` formats them, and `figures` draws.
"""
