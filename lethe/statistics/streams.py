"""Random streams by name: a stream depends on the seed and on what it is for, and on nothing that
was drawn before.

So results depend neither on the order of questions nor on their number. A name enters by a hash of
128 bits, as two of even a trillion names then share a stream with a probability below 1e-14; of
77,000 names, two share a hash of 32 bits half the time.
"""

import hashlib
import json

import numpy as np


def stream(seed: int, purpose: str, *names: str | int) -> np.random.SeedSequence:
    """Return the stream of a purpose and of names, such as those of a model and a question.

    >>> first, second = stream(0, "answers", "plumless"), stream(0, "answers", "buckeroo")
    >>> bool((first.generate_state(4) != second.generate_state(4)).all())
    True
    """
    # JSON keeps names apart, ("a", "b") from ("ab",) and 1 from "1", and escapes what UTF-8 cannot
    # encode.
    named = json.dumps([purpose, *names]).encode()
    words = np.frombuffer(hashlib.blake2b(named, digest_size=16).digest(), dtype="<u4")
    return np.random.SeedSequence(seed, spawn_key=tuple(words.tolist()))
