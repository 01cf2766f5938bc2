"""The version, in a room before all others."""

__version__ = "0.2.0"
