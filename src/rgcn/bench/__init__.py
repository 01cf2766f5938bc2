"""`rgcn bench`: our training step beside other people's, and beside what the machine could do at best.

Everything here runs on PyTorch and numpy alone (`python -m rgcn.bench`), so that it can be carried to a machine that
has little else; data sets by name and pictures need more.
"""
