"""Everything that happens around a training."""

from rgcn.runs.configuration import dump_configuration, load_configuration, shipped_configurations
from rgcn.runs.training import RunResult, load_data, train

__all__ = ["RunResult", "dump_configuration", "load_configuration", "load_data", "shipped_configurations", "train"]
