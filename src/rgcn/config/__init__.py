"""Every knob, its default, and what it does: a file a section.

All problems are reported at once, each with where it was written and how to put it right (`section`). What settings
cannot be together stands below the fields of their section, or of the run. A field worth tuning declares where to
search, and one that chooses on an axis, on which (`knobs`).
"""

from rgcn.config.data_section import DataConfig
from rgcn.config.knobs import SearchSpace, search_spaces, tuned
from rgcn.config.model_section import LinkModelConfig, ModelSection, NodeModelConfig, Scheme
from rgcn.config.run_section import (
    CheckpointConfig,
    ClassificationByLinksRun,
    LinkPredictionRun,
    NodeClassificationRun,
    PretrainingRun,
    RunConfig,
    Tracker,
)
from rgcn.config.section import Section, validated
from rgcn.config.training_section import (
    ClassLinkTrainingConfig,
    LinkTrainingConfig,
    NodeTrainingConfig,
    PretrainingConfig,
)

__all__ = [
    "CheckpointConfig",
    "ClassLinkTrainingConfig",
    "ClassificationByLinksRun",
    "DataConfig",
    "LinkModelConfig",
    "LinkPredictionRun",
    "LinkTrainingConfig",
    "ModelSection",
    "NodeClassificationRun",
    "NodeModelConfig",
    "NodeTrainingConfig",
    "PretrainingConfig",
    "PretrainingRun",
    "RunConfig",
    "Scheme",
    "SearchSpace",
    "Section",
    "Tracker",
    "search_spaces",
    "tuned",
    "validated",
]
