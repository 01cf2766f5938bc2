"""The version, in a room before all others."""

__version__ = "0.3.0.dev0"
