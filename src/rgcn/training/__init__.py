"""How a network learns: objectives, optimizers, the steps of each task, and trainings that stop and resume."""
