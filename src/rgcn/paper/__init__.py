"""The paper's figures beside ours: what is published, what we get, and whether the two agree."""
