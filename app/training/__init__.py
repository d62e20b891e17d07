"""Batch training of a model on judged data: options, trainer, jobs, targets."""
