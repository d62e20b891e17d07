"""The queue of events, with a clock and randomness of the test."""

from hypothesis import given, settings
from hypothesis import strategies as st
from solar_client.delivery import Delivery, RejectedEvent
from solar_client.events import Event
from solar_client.queue import Batch, EventQueue, Limits


def event(name: str, model: str = "m", at: float = 0.0, size: int = 10) -> Event:
    return Event(name, model, b"x" * size, at)


def filled(count: int, limits: Limits | None = None, size: int = 10) -> EventQueue:
    queue = EventQueue(limits or Limits())
    for at in range(count):
        queue.put(event(f"e{at}", size=size))
    return queue


def names(batch: Batch | None) -> list[str]:
    return [one.id for one in batch.events] if batch else []


def acknowledged(batch: Batch) -> Delivery:
    return Delivery(len(batch.events))


def test_a_batch_is_due_after_half_a_second_or_with_100_events() -> None:
    queue = filled(99)
    assert queue.take(0.49) is None
    assert queue.due_at() == 0.5
    assert queue.put(event("last"))  # the sender must wake up
    assert len(names(queue.take(0.0))) == 100
    assert len(names(filled(1).take(0.5))) == 1


def test_a_batch_has_at_most_475_kilobytes() -> None:
    queue = filled(30, size=50_000)
    batch = queue.take(0.0)
    assert batch is not None
    assert len(batch.events) == 9
    assert len(batch.body) <= 475_000
    queue.settle(batch, acknowledged(batch), 0.0, 0.0)
    assert names(queue.take(0.0))[0] == "e9"


def test_a_larger_event_is_sent_alone() -> None:
    queue = filled(2, size=900_000)
    assert names(queue.take(0.0)) == ["e0"]


def test_batches_are_of_one_model_and_the_oldest_event_comes_first() -> None:
    queue = EventQueue(Limits())
    for at, model in enumerate(["b", "a", "b", "c"]):
        queue.put(event(f"e{at}", model, at / 100))
    sent = [names(queue.take(1.0)) for _ in range(3)]
    assert sent == [["e0", "e2"], ["e1"], ["e3"]]
    assert queue.take(1.0) is None


def test_a_full_queue_drops_the_oldest_event_of_all_models_and_counts_it() -> None:
    queue = EventQueue(Limits(queued=3))
    for at, model in enumerate(["a", "b", "a", "b", "a"]):
        queue.put(event(f"e{at}", model))
    assert (queue.dropped, queue.pending, queue.queued) == (2, 3, 5)
    assert sorted([names(queue.take(1.0)), names(queue.take(1.0))]) == [["e2", "e4"], ["e3"]]


def test_a_failed_batch_waits_for_the_backoff_and_is_sent_again_first() -> None:
    queue = filled(150)
    batch = queue.take(0.0)
    assert batch is not None
    queue.settle(batch, Delivery(again=batch.events, reason="503", retry_after=2.0), 10.0, 0.5)
    assert queue.due_at() == 10.0 + 2.0 + 0.05
    assert queue.take(12.0) is None
    again = queue.take(12.1)
    assert names(again) == names(batch)
    assert again is not None
    queue.settle(again, Delivery(again=again.events, reason="timeout"), 20.0, 1.0)
    assert queue.due_at() == 20.2
    assert queue.retries == {"503": 1, "timeout": 1}


def test_the_backoff_of_a_model_does_not_stop_another() -> None:
    queue = EventQueue(Limits())
    queue.put(event("e0", "a"))
    batch = queue.take(1.0)
    assert batch is not None
    queue.settle(batch, Delivery(again=batch.events, reason="429", retry_after=60.0), 1.0, 0.0)
    queue.put(event("e1", "b", 1.0))
    assert names(queue.take(1.5)) == ["e1"]


def test_returned_events_do_not_exceed_the_queue() -> None:
    queue = filled(100, Limits(queued=100))
    batch = queue.take(0.0)
    assert batch is not None
    for at in range(100, 150):
        queue.put(event(f"e{at}"))
    queue.settle(batch, Delivery(again=batch.events, reason="503"), 0.0, 0.0)
    assert (queue.pending, queue.dropped) == (100, 50)
    assert names(queue.take(1.0))[0] == "e50"


def test_a_flush_makes_all_batches_due_and_counts_since_the_flush_before() -> None:
    queue = filled(3)
    flush = queue.begin_flush()
    queue.put(event("later"))
    batch = queue.take(0.0)
    assert batch is not None
    refused = RejectedEvent("e0", {}, 422, "", "")
    queue.settle(batch, Delivery(3, 1, [refused]), 0.0, 0.0)
    assert flush.left == 0
    result = queue.end_flush(flush)
    assert (result.acknowledged, result.duplicates, result.rejected, result.pending) == (3, 1, 1, 0)
    again = queue.end_flush(queue.begin_flush())
    assert (again.acknowledged, again.rejected) == (0, 0)


def test_a_batch_that_is_too_large_is_halved_until_it_fits() -> None:
    queue = filled(100)
    sizes = []
    for _ in range(3):
        batch = queue.take(1.0)
        assert batch is not None
        sizes.append(len(batch.events))
        queue.settle(batch, Delivery(again=batch.events, too_large=True), 1.0, 0.0)
    assert sizes == [100, 50, 25]


def test_events_in_flight_return_if_their_sender_ends() -> None:
    queue = filled(5)
    assert len(names(queue.take(1.0))) == 5
    queue.give_all_back()
    assert names(queue.take(1.0)) == [f"e{at}" for at in range(5)]


def test_after_a_failure_one_batch_at_a_time_is_tried() -> None:
    queue = filled(400)
    first, second = queue.take(0.0), queue.take(0.0)
    assert first is not None
    assert second is not None
    for failed in (first, second):  # both fail: that counts once
        queue.settle(failed, Delivery(again=failed.events, reason="503"), 1.0, 1.0)
    assert queue.failures("m") == 1
    assert queue.due_at() == 1.1
    again = queue.take(2.0)
    assert again is not None
    assert queue.take(2.0) is None
    queue.settle(again, acknowledged(again), 2.0, 1.0)
    assert queue.take(2.0) is not None
    assert queue.take(2.0) is not None


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("putfail"), st.sampled_from("ab")), max_size=60))
def test_every_event_is_acknowledged_rejected_dropped_or_pending(
    steps: list[tuple[str, str]],
) -> None:
    queue, now = EventQueue(Limits(queued=5, events=3)), 0.0
    for step, model in steps:
        now += 20.0
        if step in "pu":
            queue.put(event("e", model, now))
        elif (batch := queue.take(now)) is not None:
            *rest, last = batch.events
            answers = {
                "t": Delivery(len(batch.events)),
                "f": Delivery(again=batch.events, reason="503"),
                "a": Delivery(len(rest), 0, [RejectedEvent("e", {}, 422, "", "")]),
                "i": Delivery(len(rest), 0, [], [last], "429"),
                "l": Delivery(again=batch.events, too_large=True),
            }
            queue.settle(batch, answers[step], now, 0.5)
        counted = queue.acknowledged + queue.rejected + queue.dropped + queue.pending
        assert counted == queue.queued
        assert queue.pending <= 5
