"""The cards of a report that stand on every page, whatever the task: a subject a file."""

from rgcn.pages.cards.caveats import caveats
from rgcn.pages.cards.data import data_card
from rgcn.pages.cards.machine import environment_card
from rgcn.pages.cards.model import model_card
from rgcn.pages.cards.sessions import time_card
from rgcn.pages.cards.settings import settings_card

__all__ = ["caveats", "data_card", "environment_card", "model_card", "settings_card", "time_card"]
