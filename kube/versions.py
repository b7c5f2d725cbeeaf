# SPDX-License-Identifier: Apache-2.0
"""Comparison of two resourceVersions of objects, as far as they can be compared."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)


def is_older(version: object, than: object) -> bool:
    """Whether ``version`` comes before ``than``; False where that cannot be known.

    Since Kubernetes 1.35 they are by definition decimal numbers that grow; before, they were in
    fact the revisions of etcd. They grow for as long as the store is not put back to a backup.
    Source: Kubernetes API concepts, resource versions; KEP-5504.
    """
    texts = str(version), str(than)
    if not all(text.isascii() and text.isdecimal() for text in texts):
        return False
    return int(texts[0]) < int(texts[1])


class KnownVersions(Generic[K]):
    """The newest version of each object, of those that a watch and answers to writes have sent.

    An answer has the newest version, and a watch may send older ones after it. They compare within
    the life of one watch only: one that was lost may come back to a store that was put back to a
    backup, whose versions are lower and true. For one thread at a time.
    """

    def __init__(self) -> None:
        self._newest: dict[K, tuple[str, str]] = {}

    def take(self, key: K, metadata: Mapping[str, Any]) -> bool:
        """Take the version of this object; False, and nothing is taken, for an older one."""
        uid, version = metadata["uid"], str(metadata.get("resourceVersion"))
        known_uid, known = self._newest.get(key, ("", ""))
        if known_uid == uid and is_older(version, known):
            return False
        self._newest[key] = uid, version
        return True

    def drop(self, key: K) -> None:
        """Forget the version of an object that exists no more."""
        self._newest.pop(key, None)

    def forget(self) -> None:
        """Take the next version of each object, whatever it is: the watch begins anew."""
        self._newest.clear()
