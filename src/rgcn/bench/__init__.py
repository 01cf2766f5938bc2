"""`rgcn bench`: compare our training step with that of PyG, and with the least time the machine allows.

It needs PyTorch and NumPy only (`python -m rgcn.bench`), so that it runs on machines without the other dependencies;
data sets by name and plots need more.
"""
