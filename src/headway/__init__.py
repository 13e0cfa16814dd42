"""Headway: more training from the hardware you already have."""

__version__ = "0.1.0"
