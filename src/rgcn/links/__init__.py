"""From scores to answers: the best ones, what is known of them, and how probable they are. Asks a `Scorer` alone."""

from typing import TYPE_CHECKING

from rgcn.system.lazy import lazy_attributes

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__)
