"""Everything that happens around a training."""

from rgcn.system.lazy import lazy_names

# Looking at run folders needs no PyTorch, so each name brings in its own file only when it is first used.
__getattr__ = lazy_names(
    __name__,
    {
        "assembly": ("load_data", "load_run_data"),
        "configuration": ("dump_configuration", "load_configuration", "shipped_configurations"),
        "folder": ("RunFolder",),
        "training": ("resume", "train"),
    },
)
