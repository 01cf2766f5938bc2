"""Every knob, its default, and what it does: a file a section.

All problems are reported at once, each with where it was written and how to put it right (`fields`). What settings
cannot be together stands below the fields of their section, or of the run. A field worth tuning declares where to
search, and one that chooses on an axis, on which (`fields`).
"""

from rgcn.config.fields import SearchSpace as SearchSpace
from rgcn.config.fields import Section as Section
from rgcn.config.fields import search_spaces as search_spaces
from rgcn.config.fields import tuned as tuned
from rgcn.config.fields import validated as validated
from rgcn.config.model_section import LinkModelConfig as LinkModelConfig
from rgcn.config.model_section import ModelSection as ModelSection
from rgcn.config.model_section import NodeModelConfig as NodeModelConfig
from rgcn.config.model_section import Scheme as Scheme
from rgcn.config.run_section import CheckpointConfig as CheckpointConfig
from rgcn.config.run_section import ClassificationByLinksRun as ClassificationByLinksRun
from rgcn.config.run_section import DataConfig as DataConfig
from rgcn.config.run_section import LinkPredictionRun as LinkPredictionRun
from rgcn.config.run_section import NodeClassificationRun as NodeClassificationRun
from rgcn.config.run_section import PretrainingRun as PretrainingRun
from rgcn.config.run_section import RunConfig as RunConfig
from rgcn.config.run_section import Tracker as Tracker
from rgcn.config.training_section import ClassLinkTrainingConfig as ClassLinkTrainingConfig
from rgcn.config.training_section import LinkTrainingConfig as LinkTrainingConfig
from rgcn.config.training_section import NodeTrainingConfig as NodeTrainingConfig
from rgcn.config.training_section import PretrainingConfig as PretrainingConfig
