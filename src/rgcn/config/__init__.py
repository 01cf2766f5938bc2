"""Every setting with its default: one module for each section of a configuration.

All problems of a configuration are reported at once, each with where it was written and how to fix it (`fields`). Rules
about combinations of settings stand below the fields of their section or run.
"""

from rgcn.config.fields import SearchSpace as SearchSpace
from rgcn.config.fields import Section as Section
from rgcn.config.fields import search_spaces as search_spaces
from rgcn.config.fields import tuned as tuned
from rgcn.config.fields import validate_section as validate_section
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
