"""How a network learns: objectives, optimizers, the steps of each task, and trainings that stop and resume."""

from typing import TYPE_CHECKING

from rgcn.system.lazy import lazy_attributes

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__)
