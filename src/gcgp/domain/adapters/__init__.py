"""Signals from and to the objects of other libraries; reading needs their attributes, not the packages."""
