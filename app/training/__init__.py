"""Batch training on judged data: options, trainer, jobs, targets."""
