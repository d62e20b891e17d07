"""Leases in the data of an embedded server that has just started.

Their holders used the earlier server. Removing the leases lets learners go on at once. A learner
that still runs is fenced and takes a new lease.
"""

import logging
from typing import Any

from redis import Redis
from redis import exceptions as foreign
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.storage.keys import LEARNERS, MODELS, keys_of

log = logging.getLogger("solar")
TIMEOUT_SECONDS = 5.0
#: Keys that one command removes.
KEYS_AT_ONCE = 1_000


def remove_leases(url: str, *, training: bool) -> bool:
    """Remove the leases of learners, and of training processes if `training`.

    Return False if the server has ended.
    """
    once = Retry(NoBackoff(), 0)
    client: Any = Redis.from_url(url, socket_timeout=TIMEOUT_SECONDS, retry=once)
    try:
        models = [keys_of(name.decode()) for name in client.smembers(MODELS)]
        keys = [LEARNERS, *(one.lease for one in models)]
        keys += [one.training for one in models] if training else []
        for at in range(0, len(keys), KEYS_AT_ONCE):
            client.delete(*keys[at : at + KEYS_AT_ONCE])
    except foreign.ConnectionError:
        return False
    except foreign.RedisError as error:  # such as a full disk
        log.warning("the leases of earlier learners stay until they expire: %s", error)
    finally:
        client.close()
    return True
