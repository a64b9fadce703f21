"""The tables and pictures of docs that the program alone determines, by subject."""

from . import ageing, crash, dirpref, lab, map, sensitivity, snapshots, softdep, tarcp  # noqa: F401  each enters its figures
from .page import FIGURES, Report

__all__ = ["FIGURES", "Report"]
