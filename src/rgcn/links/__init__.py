"""Turn scores into answers: ranking, relation constraints, top-k, calibrated probabilities and completion."""

from typing import TYPE_CHECKING

from rgcn.system.lazy import lazy_attributes

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__)
