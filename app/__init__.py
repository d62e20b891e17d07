"""SOLAR: it ranks, it learns from every pair, it measures itself.

ranking/       the core: pure mathematics (SOLAR-I and -II, pairs, measures, serving)
store/         the cellar: Redis, the log and the state of every model
events.py      the words that cross walls
impressions.py → posting.py → store → learner.py → fold.py: the way of a feedback event
training.py → trainer.py: judged data → batch model; workshop.py and apprentice.py: as a job
audit.py       looking back, bit for bit
letor.py → evaluation.py: the paper's online experiment; world.py invents data for it
folds.py → comparison.py, starts.py: the same on five folds, against and after batch learning
settings.py, wiring.py, commands.py, __main__.py: the front door and what it plugs together
errors.py      every error that crosses a wall; kernel_cache.py: where compiled kernels are kept
"""

from app import kernel_cache

kernel_cache.use()
