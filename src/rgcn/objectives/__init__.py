"""What a training of links minimizes; an objective a file, behind an interface a page long."""

from rgcn.objectives.base import Objective, ObjectivePlan

__all__ = ["Objective", "ObjectivePlan"]
