"""A small shop whose search learns from clicks."""
