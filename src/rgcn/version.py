"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rgcn")
except PackageNotFoundError:  # the source tree is on the path, and the package is not installed
    __version__ = "0+unknown"
