"""How long a run lasts, which faults it has when, and its request rates."""

from dataclasses import dataclass

#: One round of faults; a run repeats rounds in random order.
FAULTS = (
    "kill worker 0", "kill worker 1", "kill learner", "kill store", "kill supervisor",
    "stop worker 0", "stop learner", "restart service", "pause learner", "pause worker 1",
    "clock ahead", "clock behind", "full disk", "kill training",
)  # fmt: skip
#: The window of a long run: latencies of its first and its last ten minutes are compared.
WINDOW_SECONDS = 600.0
#: A shorter run says too little about growth and drift: their goals are not judged.
SHORTEST_JUDGED = 1800.0


@dataclass(frozen=True)
class Plan:
    """A run: its length in seconds, the seed of all choices, and requests per second.

    Faults happen between the first window and 5/12 of the run, each at least once. The rest has
    churn only, so that processes live long enough to grow.
    """

    seconds: float
    seed: int = 0
    faults: tuple[str, ...] = FAULTS
    workers: int = 2
    ranks: float = 50.0
    events: float = 25.0
    beacons: float = 4.0
    reads: float = 1.0
    #: Seconds between two actions of operators.
    churn: float = 3.0
    #: Other work runs on the machine: drift of latencies is reported, not judged.
    shared: bool = False

    @property
    def window(self) -> float:
        """Seconds at the start and at the end whose latencies are compared."""
        return min(WINDOW_SECONDS, self.seconds / 6)

    @property
    def warm_up(self) -> float:
        """Seconds at the start whose latencies are not compared: caches and connections are new."""
        return self.window / 10

    @property
    def warm(self) -> float:
        """Age in seconds from which on a process must not grow."""
        return self.window

    @property
    def span(self) -> float:
        """Seconds of samples whose median is one end of a growth."""
        return self.window / 5

    @property
    def faults_until(self) -> float:
        """Seconds from the start to the last fault."""
        return self.seconds * 5 / 12

    @property
    def fault_pause(self) -> float:
        """Seconds between two faults."""
        return min(10.0, self.seconds / 360)

    @property
    def step_seconds(self) -> float:
        """Seconds that a step of the clock lasts."""
        return min(20.0, self.seconds / 45)

    @property
    def sampling(self) -> float:
        """Seconds between two samples."""
        return min(5.0, self.seconds / 60)

    @property
    def judged(self) -> bool:
        """Whether the run is long enough for the goals of growth and drift."""
        return self.seconds >= SHORTEST_JUDGED
