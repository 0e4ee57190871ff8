"""The paper's tables and figures, made anew by one command each, beside their baselines.

`tables` says what each table holds, `models` what is fitted, `sets` on which data; `runs` keeps each run as
soon as it is done, and `reporting` makes text of them.
"""
