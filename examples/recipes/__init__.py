"""Recipes: other systems in front of SOLAR. `docs/recipes.md` explains them."""
