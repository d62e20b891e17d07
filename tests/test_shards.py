"""Training on shards equals training in one process; bad shards are refused by name."""

import os
import resource
from collections.abc import Iterable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise, zip_longest
from pathlib import Path
from threading import Thread
from time import process_time
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from app.domain.model_config import ModelConfig, new_model_config
from app.errors import BadData, Forbidden, InvalidInput, SolarError
from app.evaluation import letor
from app.ranking.arrays import Floats
from app.ranking.batch import Progress, silent
from app.ranking.batch.judgements import Judgements
from app.ranking.batch.newton import Minimum
from app.ranking.batch.ranksvm import squared_hinge
from app.ranking.batch.warmstart import scatter, spreads
from app.training import trainer
from app.training.options import Training, check_sharded_training
from app.training.shards import blocks, files, memory, parts
from app.training.shards import training as sharded
from app.training.shards.blocks import QueryRows, in_blocks
from app.training.shards.cache import Cache
from app.training.shards.checkpoint import Checkpoint, CheckpointedTrainer
from app.training.shards.dispatch import Dispatch, TooManyLosses
from app.training.shards.engines import EngineSums, SerialEngine
from app.training.shards.files import Location, located
from app.training.shards.heartbeats import Heartbeats
from app.training.shards.parts import Reading, ShardPart
from app.training.shards.urls import below_prefix, check_cluster, prefixes_of
from tests.shards import (
    N,
    as_queries,
    checked,
    drawn,
    in_one,
    write_columns,
    write_parquet,
    write_text,
    written,
)

SHARDS = drawn()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few queries, so that each shard has several."""
    monkeypatch.setattr(parts, "BLOCK_BYTES", 200)


# ---- equality with one process ----


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("cache", [0, 3000, 1 << 20])
def test_sums_over_shards_equal_those_of_one_matrix(tmp_path: Path, cache: int) -> None:
    engine, one = SerialEngine(cache), in_one(SHARDS)
    sums = EngineSums(engine, checked(written(tmp_path, SHARDS), engine).parts())
    rng = np.random.default_rng(1)
    for _ in range(2):  # the second time from the cache
        w, v = rng.normal(size=N), rng.normal(size=N)
        point = squared_hinge(one, C=1.0).at(w)
        loss, gradient = sums.loss(w)
        assert loss + 0.5 * w @ w == pytest.approx(point.value, rel=1e-12)
        np.testing.assert_allclose(gradient + w, point.gradient, rtol=1e-12)
        np.testing.assert_allclose(sums.product(w, v) + v, point.hessian_product(v), rtol=1e-12)
        np.testing.assert_allclose(sums.scatter(w), scatter(one, w), rtol=1e-11)
        np.testing.assert_allclose(sums.spreads(w), spreads(one, w), rtol=1e-11)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "training",
    [
        Training(C=0.1),
        Training(),
        Training(by="pairwise", validation=0.4),
        Training(validation=10.0),
    ],
)
def test_a_training_on_shards_equals_one_in_memory(tmp_path: Path, training: Training) -> None:
    engine, expected = SerialEngine(5000), trainer.train_batch(in_one(SHARDS), training)
    found = sharded.train_shards(engine, checked(written(tmp_path, SHARDS), engine), training)
    np.testing.assert_allclose(found.minimum.w, expected.weights, rtol=0, atol=1e-9)
    about, other = (
        sharded.describe_sharded(found, training, "none"),
        trainer.describe_training(expected, training, "none"),
    )
    assert about.keys() == other.keys()
    for name in ("C", "normalization", "queries", "documents", "iterations", "converged"):
        assert about[name] == other[name]
    features = tuple("abcd")
    for config in (
        ModelConfig(features, "solar-i"),
        ModelConfig(features),
        ModelConfig(features, covariance="diagonal"),
    ):
        model = sharded.online_sharded(found, config)
        np.testing.assert_allclose(model.spread, trainer.online(expected, config).spread, rtol=1e-9)


@pytest.mark.usefixtures("small_blocks")
def test_sparse_rows_train_as_in_one_process(tmp_path: Path) -> None:
    n, rng, lines = 2500, np.random.default_rng(0), []
    for query in range(30):
        for _ in range(4):
            columns = np.sort(rng.choice(n, 5, replace=False)) + 1
            values = " ".join(f"{column}:{rng.random():.3f}" for column in [*columns, n + 1])
            lines.append(f"{rng.integers(3)} qid:{query} {values}")
    for at in range(2):
        (tmp_path / f"{at}.txt").write_text("\n".join(lines[60 * at : 60 * (at + 1)]) + "\n")
    found = sharded.train_shards(SerialEngine(), checked([str(tmp_path)]), Training(C=0.5))
    data = letor.read_letor(sorted(tmp_path.iterdir()))
    expected = trainer.train_batch(Judgements.of(data.queries), Training(C=0.5))
    assert found.minimum.iterations == expected.minimum.iterations
    np.testing.assert_allclose(found.minimum.w, expected.weights, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("normalization", ["none", "query-minmax"])
@pytest.mark.parametrize("splines", [None, {"b": (0.25, 0.5), "d": (0.5,)}])
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_shards_train_a_model_with_normalization_and_splines_as_one_process_does(
    tmp_path: Path, normalization: str, splines: Any, covariance: Any
) -> None:
    config = new_model_config(
        tuple("abcd"), covariance=covariance, normalization=normalization, splines=splines
    )
    engine = SerialEngine()
    some = checked(written(tmp_path, SHARDS), engine, config=config)
    found = sharded.train_shards(engine, some, Training())
    judged = trainer.judgements(as_queries(SHARDS), config, 1e4)
    expected = trainer.train_batch(judged, Training())
    assert len(found.minimum.w) == len(config.columns)
    assert found.parameter == expected.parameter
    np.testing.assert_allclose(found.minimum.w, expected.weights, rtol=0, atol=1e-9)
    model, other = sharded.online_sharded(found, config), trainer.online(expected, config)
    np.testing.assert_allclose(model.weights, other.weights, rtol=0, atol=1e-9)
    np.testing.assert_allclose(model.spread, other.spread, rtol=1e-8)


@pytest.mark.parametrize("normalization", ["none", "query-minmax"])
def test_text_lists_and_columns_give_the_same_model(tmp_path: Path, normalization: str) -> None:
    names = tuple("abcd")
    config = new_model_config(names, normalization=normalization, prior=0.0)
    found = []
    for kind in ("text", "lists", "columns"):
        folder = tmp_path / kind
        folder.mkdir()
        for at, one in enumerate(SHARDS):
            if kind == "text":
                write_text(folder / f"{at}.txt", one)
            elif kind == "lists":
                write_parquet(folder / f"{at}.parquet", one)
            else:
                write_columns(folder / f"{at}.parquet", one, names)
        engine = SerialEngine()
        shards = sharded.find_shards(engine, located([str(folder)]))
        columns = sharded.read_columns(engine, shards)
        some = sharded.check_shards(engine, shards, columns, config, 1e4)
        found.append(sharded.train_shards(engine, some, Training(C=0.1)).minimum.w)
    assert (found[0] == found[1]).all()
    assert (found[1] == found[2]).all()


def test_columns_are_found_by_the_names_of_the_models_features(tmp_path: Path) -> None:
    path = write_columns(tmp_path / "a.parquet", SHARDS[0], "abcd")
    engine = SerialEngine()
    shards = sharded.find_shards(engine, located([str(path)]))
    columns = sharded.read_columns(engine, shards)
    weights = {}
    for names in ("abcd", "dcba"):
        some = sharded.check_shards(engine, shards, columns, new_model_config(tuple(names)), 1e4)
        w = sharded.train_shards(engine, some, Training(C=0.1)).minimum.w
        weights[names] = dict(zip(names, w.tolist(), strict=True))
    assert weights["abcd"] == pytest.approx(weights["dcba"], abs=1e-12)
    with pytest.raises(BadData, match="expected the column price"):
        sharded.check_shards(engine, shards, columns, new_model_config((*"abc", "price")), 1e4)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=20),
    cut=st.integers(1, 7),
    most=st.integers(8, 200),
)
def test_blocks_have_whole_queries_and_do_not_depend_on_the_pieces(
    sizes: list[int], cut: int, most: int
) -> None:
    names = [f"q{at}" for at, size in enumerate(sizes) for _ in range(size)]
    rows = np.arange(len(names), dtype=np.float32)[:, None]

    def pieces(step: int) -> Iterator[QueryRows]:
        for low in range(0, len(names), step):
            some = names[low : low + step]
            starts = [0, *(at + 1 for at, (a, b) in enumerate(pairwise(some)) if a != b), len(some)]
            lengths = np.diff(starts)
            labels = np.zeros(len(some))
            yield QueryRows(
                tuple(some[at] for at in starts[:-1]), lengths, labels, rows[low : low + step]
            )

    whole = list(in_blocks(pieces(len(names)), most))
    for found in (list(in_blocks(pieces(cut), most)), whole):
        assert [one.names for one in found] == [one.names for one in whole]
        assert np.concatenate([one.sizes for one in found]).tolist() == sizes
        assert np.concatenate([one.X for one in found]).ravel().tolist() == rows.ravel().tolist()
    for one in whole:
        assert one.query_bytes().sum() <= most or len(one.names) == 1


# ---- the cache of a worker ----


def read_as(url: str, training: str, names: str) -> ShardPart:
    (shard,) = files.expand(located([url])[0])
    return ShardPart(shard, Reading(training, N, tuple(names)))


@pytest.mark.usefixtures("small_blocks")
def test_two_trainings_at_once_on_a_worker_have_their_own_columns(tmp_path: Path) -> None:
    url = str(write_columns(tmp_path / "a.parquet", SHARDS[0], "abcd"))
    one, two = read_as(url, "one", "abcd"), read_as(url, "two", "dcba")
    cache, w = Cache(1 << 20), np.arange(N) / N
    expected = {part: parts.part_loss(Cache(0), part, w) for part in (one, two)}
    for first, second in ((one, two), (two, one)):
        reading = parts.blocks(cache, first)
        next(reading)  # one thread is inside a shard
        assert parts.part_loss(cache, second, w).loss == expected[second].loss  # another thread
        assert len(list(reading)) > 1
        parts.query_names(cache, first, np.array([parts._hash("0-3")], np.uint64))
        for part in (second, first):
            found = parts.part_loss(cache, part, w)
            assert found.gradient.tobytes() == expected[part].gradient.tobytes()


@pytest.mark.usefixtures("small_blocks")
def test_a_late_thread_keeps_nothing_for_a_training_that_has_ended(tmp_path: Path) -> None:
    url = str(write_columns(tmp_path / "a.parquet", SHARDS[0], "abcd"))
    one, cache = read_as(url, "one", "abcd"), Cache(1 << 20)
    reading = parts.blocks(cache, one)
    next(reading)
    cache.use_for("two")
    list(reading)
    cache.keep_residuals("one", "key", np.zeros(N), cast(Any, None))
    assert (cache.rows, cache.residuals, cache.reserved) == ({}, {}, 0)


@pytest.mark.usefixtures("small_blocks")
def test_threads_that_read_at_once_share_the_room_of_a_cache(tmp_path: Path) -> None:
    given = checked(written(tmp_path, SHARDS)).parts()
    size = sum(rows.nbytes for rows in parts._read(Cache(0), given[0]))
    cache = Cache(3 * size)  # two thirds are for rows: two shards
    cache.use_for(given[0].reading.training)
    threads = [parts._read(cache, part) for part in given]
    held = 0
    for _ in zip_longest(*threads):
        held = max(held, cache.reserved + cache.sizes["rows"])
    assert size < held <= 2 * size
    assert 1 <= len(cache.rows) <= 2
    assert (cache.reserved, cache.sizes["rows"]) == (0, sum(map(bytes_of, cache.rows.values())))


def bytes_of(rows: Iterable[QueryRows]) -> int:
    return sum(one.nbytes for one in rows)


# ---- refused shards ----


def changed(folder: Path, **changes: Any) -> str:
    return str(write_parquet(folder / "bad.parquet", SHARDS[0], **changes))


def labels(value: Any) -> list[Any]:
    return [value, *SHARDS[0]["label"][1:]]


def rows(value: Any) -> list[Any]:
    return [[value, 0.0, 0.0, 0.0], *list(SHARDS[0]["features"])[1:]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qid": None}, "expected the column qid"),
        ({"label": None}, "expected the column label"),
        ({"features": None}, "expected the column features"),
        ({"label": labels(None)}, "column label: expected a value in each row, got null"),
        ({"label": labels(float("nan"))}, "row 1: expected a label from 0 to"),
        ({"label": labels(-1.0)}, "row 1: expected a label from 0 to"),
        ({"features": rows(None)}, "column features: expected a value in each row, got null"),
        ({"features": rows(float("nan"))}, "row 1: expected finite features"),
        ({"features": rows(1e300)}, "row 1: expected finite features"),
        ({"features": rows(1e6)}, "expected features within"),
        ({"features": [[0.0], *rows(0.0)[1:]]}, "expected 1 values in each row, got 4"),
        ({"label": ["x"] * len(SHARDS[0]["label"])}, "column label: expected numbers, got string"),
        ({"qid": [*SHARDS[0]["qid"][1:], SHARDS[0]["qid"][0]]}, "expected contiguous rows"),
    ],
)
def test_a_bad_shard_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadData, match=message) as refused:
        checked([changed(tmp_path, **changes)])
    assert "bad.parquet" in str(refused.value)


def test_a_query_in_two_shards_is_refused(tmp_path: Path) -> None:
    urls = written(tmp_path, SHARDS)
    other = {**SHARDS[2], "qid": ["0-3" if name == "2-1" else name for name in SHARDS[2]["qid"]]}
    write_parquet(tmp_path / "2.parquet", other)
    with pytest.raises(BadData, match=r"2\.parquet: expected all rows of a query in one shard"):
        checked(urls)


def test_an_empty_shard_is_refused(tmp_path: Path) -> None:
    none = {"qid": [], "label": [], "features": np.zeros((0, N), np.float32)}
    with pytest.raises(BadData, match=r"empty\.parquet: expected rows, got none"):
        checked([str(write_parquet(tmp_path / "empty.parquet", none))])
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(BadData, match=r"empty\.txt: expected lines"):
        checked([str(tmp_path / "empty.txt")])


def test_a_shard_that_changes_during_the_training_is_refused(tmp_path: Path) -> None:
    for cache in (0, 1 << 20):
        engine, urls = SerialEngine(cache), written(tmp_path, SHARDS)
        sums = EngineSums(engine, checked(urls, engine).parts())
        sums.loss(np.zeros(N))
        os.utime(urls[1], (1.0, 1.0))
        with pytest.raises(BadData, match=r"1\.parquet: the shard has changed"):
            sums.loss(np.zeros(N))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("/nowhere/a.parquet", ", but there is none"),
        ("nowhere://bucket/a.parquet", r" \(ValueError\), got Protocol not known"),
        ("s3://bucket/a.parquet", r" \(ImportError\), got Install s3fs"),
    ],
)
def test_an_unreadable_url_is_refused(url: str, message: str) -> None:
    with pytest.raises(BadData, match=f"{url}: expected a readable file{message}"):
        checked([url])


def test_what_is_not_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("1 qid:1 1:1")
    with pytest.raises(
        BadData, match=r"a\.parquet: expected a readable file \(ArrowInvalid\), got"
    ):
        checked([str(tmp_path / "a.parquet")])


def test_a_shard_named_twice_is_refused(tmp_path: Path) -> None:
    urls = written(tmp_path, SHARDS)
    with pytest.raises(BadData, match="expected each shard once, got it 2 times"):
        checked([*urls, str(tmp_path / "1*.parquet")])


def test_other_trainers_are_refused() -> None:
    for training in (Training(loss="l1"), Training(trainer="domination")):
        with pytest.raises(InvalidInput, match="expected ranksvm with the loss l2"):
            check_sharded_training(training)


# ---- shards by HTTP ----


class Files(BaseHTTPRequestHandler):
    """Serves one file; `/moved` redirects to it."""

    content = b""

    def do_GET(self) -> None:
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("location", "/a.txt")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("content-length", str(len(self.content)))
        self.send_header("etag", '"one"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(self.content)

    do_HEAD = do_GET  # noqa: N815  # as the base class has it

    def log_message(self, *_: Any) -> None:
        pass


def test_shards_are_read_by_http_and_redirects_are_refused(tmp_path: Path) -> None:
    Files.content = write_text(tmp_path / "a.txt", SHARDS[0]).read_bytes()
    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        base = f"http://127.0.0.1:{server.server_port}"
        try:
            assert len(checked([f"{base}/a.txt"]).ordering) == 12
            with pytest.raises(BadData, match=r"\(RedirectRefused\), got status 302"):
                checked([f"{base}/moved.txt"])
            with pytest.raises(BadData, match="none: expected a readable file, but there is none"):
                checked([f"{base}/none"])
        finally:
            server.shutdown()
            serving.join()


# ---- what a job may name ----


PREFIXES = prefixes_of("/srv/shards,s3://bucket/judged/, https://host")


@pytest.mark.parametrize(
    "url",
    [
        "/srv/shards/a.parquet",
        "/srv/shards",
        "s3://bucket/judged/2026/*.parquet",
        "https://host",
        "https://host/a.txt.gz",
    ],
)
def test_urls_below_a_prefix_are_allowed(url: str) -> None:
    assert below_prefix([url], PREFIXES)


@pytest.mark.parametrize(
    "url",
    [
        "/srv/shards-other/a", "/srv/shard", "s3://bucket/other", "s3://bucket", "https://host.evil/a",
        "https://host@evil/a", "http://host/a", "//srv/shards/a", "relative/a",
    ],
)  # fmt: skip
def test_urls_elsewhere_are_forbidden(url: str) -> None:
    with pytest.raises(Forbidden, match=r"shards\[0\]: expected a URL below a prefix"):
        below_prefix([url], PREFIXES)


@pytest.mark.parametrize(
    "url",
    [
        "file:///srv/shards/a", "FILE:/srv/shards/a", "local:///srv/shards/a", "", "a" * 2000,
        "/srv/shards/../a", "/srv/shards/./a", "s3://bucket/judged/../a", "/srv/shards/%2e%2E/a",
        "/srv/shards\\a", "simplecache::s3://bucket/judged/a", "/srv/shards/a?x", "/srv/shards/a#x",
        "/srv/shards/a\nb", "/srv/shards/%2fa", "/srv/shards/%252e%252e/a",
    ],
)  # fmt: skip
def test_other_spellings_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"shards\[0\]: expected"):
        below_prefix([url], PREFIXES)


def test_without_prefixes_no_shard_is_allowed() -> None:
    with pytest.raises(Forbidden, match="SOLAR_SHARDS"):
        below_prefix(["/srv/shards/a"], ())
    for setting in ("relative", "file:///srv", "/srv/../etc"):
        with pytest.raises(SolarError, match="SOLAR_SHARDS: expected absolute paths"):
            prefixes_of(setting)


def test_a_link_out_of_the_prefix_is_refused(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    write_parquet(outside / "a.parquet", SHARDS[0])
    (inside / "a.parquet").symlink_to(outside / "a.parquet")
    (inside / "folder").symlink_to(outside)
    for url in (inside / "a.parquet", inside / "folder" / "a.parquet", inside / "folder"):
        with pytest.raises(BadData, match=r"^shards\[0\]: expected a file below its prefix"):
            files.expand(Location(str(url), "shards[0]", f"{inside}/"))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tcp://10.0.0.1:8786", "expected tls://"),
        ("tcp://scheduler:8786", "expected tls://"),
        ("http://127.0.0.1:8786", "expected tcp://HOST:PORT"),
        ("local:0", "expected tcp://HOST:PORT"),
        ("tcp://127.0.0.1", "expected tcp://HOST:PORT"),
        ("tls://scheduler:99999", "expected tcp://HOST:PORT"),
        ("tcp://10.0.0.1:1@127.0.0.1:8786", "expected tcp://HOST:PORT"),
        ("", "expected tcp://HOST:PORT"),
    ],
)
def test_a_scheduler_beyond_loopback_needs_tls(address: str, message: str) -> None:
    with pytest.raises(SolarError, match=f"--cluster: {message}"):
        check_cluster(address, "--cluster")


def test_schedulers_on_loopback_and_with_tls_are_accepted() -> None:
    for address in (
        "tcp://127.0.0.1:1",
        "tcp://[::1]:1",
        "tcp://[::ffff:127.0.0.1]:1",
        "tls://scheduler:8786",
        "local",
        "local:2",
    ):
        assert check_cluster(address, "--cluster") == address


# ---- checkpoints ----


class Interrupted(Exception):
    pass


def test_an_interrupted_training_continues_from_its_checkpoint(tmp_path: Path) -> None:
    engine = SerialEngine()
    some, keep = checked(written(tmp_path, SHARDS), engine), tmp_path / "model.json.checkpoint"
    seen: list[float] = []

    def interrupt(progress: trainer.Progressed) -> None:
        seen.append(progress.parameter)
        if len(set(seen)) == 4:
            raise Interrupted

    with pytest.raises(Interrupted):
        sharded.train_shards(engine, some, Training(), interrupt, keep)
    assert keep.exists()
    again: list[float] = []
    found = sharded.train_shards(
        engine, some, Training(), lambda it: again.append(it.parameter), keep
    )
    assert again[0] == seen[-1]  # three fits are not repeated
    expected = sharded.train_shards(engine, some, Training())
    assert found.parameter == expected.parameter
    np.testing.assert_allclose(found.minimum.w, expected.minimum.w, atol=1e-2)


def test_a_checkpoint_of_another_training_is_ignored(tmp_path: Path) -> None:
    keep = tmp_path / "one.checkpoint"
    Checkpoint(keep, "one").keep(np.ones(3))
    assert Checkpoint(keep, "one").resumed
    assert not Checkpoint(keep, "two").resumed
    keep.write_bytes(keep.read_bytes()[:-1])
    assert not Checkpoint(keep, "one").resumed


def test_a_fit_starts_from_the_kept_weights(tmp_path: Path) -> None:
    class Fit:
        n = 2
        grid: tuple[float, ...] = (1.0,)
        starts: tuple[Floats | None, ...] = ()

        def fit(
            self, parameter: float, start: Floats | None = None, progress: Progress = silent
        ) -> Minimum:
            self.starts = (*self.starts, start)
            progress(0, 1.0, 1.0, np.array([parameter, 2.0]))
            if len(self.starts) == 1:
                raise Interrupted
            return Minimum(np.ones(2), 1.0, 1.0, 1, 1, True)

    inner = Fit()
    with pytest.raises(Interrupted):
        CheckpointedTrainer(inner, Checkpoint(tmp_path / "c", "x")).fit(1.0)
    resumed = CheckpointedTrainer(inner, Checkpoint(tmp_path / "c", "x"))
    resumed.fit(1.0)
    resumed.fit(2.0)
    first, second, third = inner.starts
    assert first is None
    assert second is not None
    assert second.tolist() == [1.0, 2.0]
    assert third is None


# ---- which worker computes what ----


def test_a_part_returns_to_the_worker_that_has_its_rows() -> None:
    homes: dict[Any, str] = {}
    for order in ({"x": 1, "y": 1}, {"y": 1, "x": 1}):
        one = Dispatch("ab", homes, 0.0)
        started = sorted(one.assign(order, now=0.0))
        assert started == [(0, "x"), (1, "y")]
        for at, worker in started:
            assert one.finish(at, worker, now=1.0)


def test_a_slow_part_gets_a_second_copy_after_five_times_the_median() -> None:
    one, workers = Dispatch("abc", {}, 0.0), {"x": 1, "y": 1, "z": 1}
    assert one.assign(workers, now=0.0) == [(0, "x"), (1, "y"), (2, "z")]
    for at, worker in ((0, "x"), (1, "y")):
        one.finish(at, worker, now=2.0)
    assert one.assign(workers, now=9.9) == []
    assert one.assign(workers, now=10.1) == [(2, "x")]
    assert one.assign(workers, now=10.9) == []
    assert one.finish(2, "x", now=11.0)
    assert not one.finish(2, "z", now=12.0)  # the first answer counts


def test_a_copy_goes_to_no_stuck_worker_and_another_follows_if_it_is_late_too() -> None:
    one, workers = Dispatch("abc", {}, 1.0), {"x": 1, "y": 1, "z": 1}
    assert one.assign(workers, now=0.0) == [(0, "x"), (1, "y"), (2, "z")]
    one.finish(2, "z", now=1.0)
    free = {"x": 2, "y": 2, "z": 1}  # x and y are stopped, and have a thread that is free
    assert one.assign(free, now=10.0) == [(0, "z")]
    one.finish(0, "z", now=11.0)
    assert one.assign(free, now=11.0) == [(1, "z")]
    more = {**free, "v": 1, "w": 1}
    assert one.assign(more, now=12.0) == []
    assert one.assign(more, now=17.0) == [(1, "v")]
    assert one.assign(more, now=99.0) == []  # three copies are the most


def test_a_stuck_worker_costs_the_next_pass_no_time_until_it_answers() -> None:
    homes: dict[Any, str] = {"a": "x", "b": "y"}
    stuck, workers = {"x"}, {"x": 1, "y": 1}
    one = Dispatch("ab", homes, 1.0, stuck)
    assert one.assign(workers, now=0.0) == [(1, "y"), (0, "x")]  # x may have recovered
    one.finish(1, "y", now=1.0)
    assert one.assign(workers, now=1.0) == [(0, "y")]
    one.finish(0, "x", now=9.0)
    assert stuck == {"x"}  # late
    again = Dispatch("ab", {}, 1.0, stuck)
    again.assign(workers, now=0.0)
    assert again.finish(1, "x", now=1.0)
    assert stuck == set()


@pytest.mark.parametrize(("now", "stopped"), [(60.1, ()), (1.0, ("x",))])
def test_the_only_part_of_a_first_pass_gets_a_copy_after_a_minute_or_if_its_worker_is_silent(
    now: float, stopped: tuple[str, ...]
) -> None:
    one = Dispatch("a", {}, 0.0)
    assert one.assign({"x": 1, "y": 1}, now=0.0) == [(0, "x")]
    assert one.assign({"y": 1}, now=0.9) == []
    assert one.assign({"y": 1}, now=now, silent=stopped) == [(0, "y")]


def test_a_part_that_cannot_be_read_is_tried_once_more_by_another_worker() -> None:
    one, workers = Dispatch("a", {}, 1.0), {"x": 1, "y": 1}
    assert one.assign(workers, now=0.0) == [(0, "x")]
    assert one.fail(0, "x")
    assert one.assign(workers, now=0.0) == [(0, "y")]
    assert not one.fail(0, "y")
    alone = Dispatch("a", {}, 1.0)
    assert alone.assign({"x": 1}, now=0.0) == [(0, "x")]
    assert alone.fail(0, "x")
    assert alone.assign({"x": 1}, now=0.0) == [(0, "x")]  # there is no other
    assert not alone.fail(0, "x")


def test_a_copy_that_cannot_be_read_leaves_the_others_running() -> None:
    one, workers = Dispatch("ab", {}, 1.0), {"x": 1, "y": 1, "z": 1}
    one.assign(workers, now=0.0)
    one.finish(1, "y", now=1.0)
    assert one.assign(workers, now=6.0) == [(0, "y")]
    assert one.fail(0, "x")
    assert one.running() == {(0, "y")}
    assert one.finish(0, "y", now=7.0)


def test_the_time_of_the_decisions_grows_with_the_parts_alone() -> None:
    def seconds(parts: int) -> float:
        one, workers = Dispatch(range(parts), {}, 0.0), {f"w{at}": 1 for at in range(16)}
        began = process_time()
        for _ in range(parts):
            one.assign(workers, now=0.0)
            one.finish(*min(one.running()), now=1.0)
        return process_time() - began

    few, many = (min(seconds(parts) for _ in range(3)) for parts in (1000, 4000))
    assert many < 8 * few  # 4 on a quiet machine; 11 where each decision looks at all parts


def test_a_part_of_a_lost_worker_is_started_again_three_times() -> None:
    one = Dispatch("a", {}, 0.0)
    for worker in ("x", "y"):
        assert one.assign({worker: 1}, now=0.0) == [(0, worker)]
        one.lose(0, worker)
    assert one.assign({"z": 1}, now=0.0) == [(0, "z")]
    with pytest.raises(TooManyLosses):
        one.lose(0, "z")


def test_a_new_scheduler_gets_all_parts_that_have_no_result() -> None:
    one = Dispatch("abc", {}, 0.0)
    one.assign({"x": 2}, now=0.0)
    one.finish(0, "x", now=1.0)
    one.lose_all()
    assert one.assign({"y": 3}, now=2.0) == [(1, "y"), (2, "y")]


@settings(max_examples=30)
@given(data=st.data())
def test_every_part_is_computed_whatever_happens(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    one, homes, now = Dispatch(range(count), {}, 0.0), {"x": 1, "y": 2, "z": 1}, 0.0
    finished: list[int] = []
    for _ in range(15):
        present = {name: homes[name] for name in homes if data.draw(st.integers(0, 4))}
        one.assign(present, now)
        now += data.draw(st.floats(0.0, 9.0))
        for at, worker in sorted(one.running()):
            if worker in present and data.draw(st.booleans()) and one.finish(at, worker, now):
                finished.append(at)
        if not data.draw(st.integers(0, 9)):
            one.lose_all()
    for _ in range(2 * count):
        one.lose_all()
        one.assign(homes, now)
        finished += [at for at, worker in sorted(one.running()) if one.finish(at, worker, now)]
    assert sorted(finished) == list(range(count))


# ---- workers and their memory ----


def seen(last: float, status: str = "running", **counts: int) -> dict[str, Any]:
    return {
        "last_seen": last, "status": status, "nthreads": 1, "metrics": {"task_counts": counts}
    }  # fmt: skip


def test_a_worker_without_a_heartbeat_is_silent_by_the_clock_of_the_caller() -> None:
    one = Heartbeats()
    for now, last in ((0.0, 500.0), (9.0, 500.0), (20.0, 501.0), (29.0, 501.0)):
        found = one.look({"x": seen(last)}, now, ())
        assert (found.ready, found.silent, found.why) == ({"x": 1}, set(), "")
    found = one.look({"x": seen(501.0), "y": seen(7.0)}, 31.0, {"x"})
    assert (found.ready, found.silent, found.why) == ({"y": 1}, {"x"}, "")
    assert "no worker sends heartbeats" in one.look({"x": seen(501.0)}, 31.0, {"x"}).why


def test_a_paused_worker_goes_on_while_it_computes_a_part() -> None:
    one = Heartbeats()
    busy = {"x": seen(1.0, "paused", executing=1), "y": seen(1.0, "paused", ready=1)}
    assert not one.look(busy, 0.0, {"x"}).why
    for computing in (set[str](), {"y"}):  # another client's, or only queued
        assert "all are paused" in one.look(busy, 0.0, computing).why
    assert "has no worker" in one.look({}, 0.0, ()).why


def test_the_workers_of_a_job_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    gb = 10**9
    assert memory.local_memory(2, cores=8, memory=16 * gb) == 2 * gb
    free = memory.cache_bytes(8 * gb, 1)
    assert 0 < memory.cache_bytes(8 * gb, 4) <= free - 2 * memory.TASK_BYTES
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2 * gb, 2 * gb))
    assert memory.local_memory(4, cores=4, memory=16 * gb) == gb // 2
    assert memory.local_workers(64) == 5
    assert memory.cache_bytes(100 * gb, 1) == 0  # the allocator takes the rest


def test_the_blocks_of_a_shard_have_at_most_32_megabytes(tmp_path: Path) -> None:
    count, n = 40_000, 50
    rows = np.zeros((count, n), np.float32)
    path, names = tmp_path / "a.parquet", np.repeat(np.arange(count // 40), 40)
    table = {"qid": names, "label": np.arange(count) % 3.0}
    values = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), n)
    parquet.write_table(pa.table({**table, "features": values}), path)
    (part,) = checked([str(path)]).parts()
    ramped = replace(part, reading=replace(part.reading, ramps=tuple((at, 0.5) for at in range(n))))
    for one, width in ((part, n), (ramped, 2 * n)):
        sizes = [block.X.nbytes for block in parts.blocks(Cache(0), one)]
        assert sum(sizes) == 8 * count * width
        assert max(sizes) <= blocks.BLOCK_BYTES <= 32_000_000
