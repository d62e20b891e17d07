"""SOLAR: it ranks, it learns from every pair, it measures itself.

ranking/       the core: pure mathematics (SOLAR-I and -II, pairs, measures, serving)
letor.py       judged data from files
world.py       an invented world with a known answer
evaluation.py  the paper's online experiment
errors.py      every error that crosses a wall
__main__.py    the front door: `solar evaluate`
"""
