"""Where the connector keeps values: a folder with a budget, or a Redis.

A store has get, put, has and remove for lists of keys, and raises OSError where it cannot answer. Any number of threads
may use one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
import time
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit


def _digest(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


class FolderStore:
    """A file per value. At most max_bytes of them: those that were used longest ago go first; 0 is no limit."""

    def __init__(self, folder: str, max_bytes: int = 0) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock = threading.Lock()  # of what follows
        self._sizes: dict[str, int] = {}  # by name, the one that was used longest ago first
        os.makedirs(folder, exist_ok=True)
        found = []
        for entry in os.scandir(folder):
            if entry.name.endswith(".tmp"):  # of a process that died while it wrote
                os.unlink(entry.path)
            elif entry.is_file():
                found.append((entry.stat().st_mtime_ns, entry.name, entry.stat().st_size))
        self._sizes = {name: size for _, name, size in sorted(found)}
        self._total = sum(self._sizes.values())

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        values: list[bytes | None] = []
        for name in map(_digest, keys):
            values.append(None)
            with contextlib.suppress(FileNotFoundError):
                with open(self._path(name), "rb") as file:
                    values[-1] = file.read()
                os.utime(self._path(name))
            with self._lock:
                if name in self._sizes:
                    self._sizes[name] = self._sizes.pop(name)
        return values

    def put(self, keys: Sequence[str], values: Sequence[bytes]) -> list[bool]:
        return [self._put_one(_digest(key), value) for key, value in zip(keys, values)]

    def _put_one(self, name: str, value: bytes) -> bool:
        with self._lock:
            if name in self._sizes:
                return True
            if self._max_bytes and len(value) > self._max_bytes:
                return False
            while self._max_bytes and self._total + len(value) > self._max_bytes:
                self._forget(next(iter(self._sizes)))
            temporary = self._path(f"{name}.{threading.get_ident()}.tmp")
            try:
                with open(temporary, "wb") as file:
                    file.write(value)
                os.replace(temporary, self._path(name))
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            self._sizes[name] = len(value)
            self._total += len(value)
            return True

    def _forget(self, name: str) -> None:
        self._total -= self._sizes.pop(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(name))

    def has(self, keys: Sequence[str]) -> list[bool]:
        with self._lock:
            return [_digest(key) in self._sizes for key in keys]

    def remove(self, keys: Sequence[str]) -> list[bool]:
        with self._lock:
            known = [_digest(key) in self._sizes for key in keys]
            for key, there in zip(keys, known):
                if there:
                    self._forget(_digest(key))
            return known

    def close(self) -> None:
        pass


class _Connection:
    """One connection that speaks RESP; commands are pipelined."""

    def __init__(self, host: str, port: int, timeout: float, login: Sequence[str]) -> None:
        self._socket = socket.create_connection((host, port), timeout)
        self._socket.settimeout(timeout)
        self._file = self._socket.makefile("rb")
        if login:
            answer = self.ask([[b"AUTH", *(word.encode() for word in login)]])[0]
            if isinstance(answer, OSError):
                raise answer

    def ask(self, commands: Sequence[Sequence[bytes]]) -> list[bytes | int | None | OSError]:
        message = []
        for command in commands:
            message.append(b"*%d\r\n" % len(command))
            message.extend(b"$%d\r\n%b\r\n" % (len(word), word) for word in command)
        self._socket.sendall(b"".join(message))
        return [self._answer() for _ in commands]

    def _answer(self) -> bytes | int | None | OSError:
        line = self._file.readline(1 << 16)
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server has closed the connection")
        kind, text = line[:1], line[1:-2]
        if kind == b"+":
            return text
        if kind == b"-":
            return OSError(text.decode(errors="replace"))
        if kind == b":":
            return int(text)
        if kind != b"$":
            raise ConnectionError(f"an answer that begins with {kind!r}")
        size = int(text)
        if size < 0:
            return None
        body = self._file.read(size + 2)
        if len(body) != size + 2:
            raise ConnectionError("the server has closed the connection")
        return body[:-2]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class RedisStore:
    """Values in a Redis. A connection per thread, made anew after a failure, at most once in retry_seconds."""

    def __init__(self, url: str, prefix: str = "varve-lm", ttl: int = 0, timeout: float = 1, retry_seconds: float = 1):
        parts = urlsplit(url)
        if parts.scheme != "redis" or not parts.hostname:
            raise ValueError("store: a Redis is redis://[[USER]:PASSWORD@]HOST[:PORT]")
        self._address = (parts.hostname, parts.port or 6379)
        words = [unquote(parts.username or ""), unquote(parts.password or "")]
        self._login = [word for word in words if word] if words[1] else []
        self._prefix, self._ttl, self._timeout = prefix, ttl, timeout
        self._retry_seconds = retry_seconds
        self._retry_at = 0.0
        self._local = threading.local()

    def _key(self, key: str) -> bytes:
        name = _digest(key)
        return f"{self._prefix}:{{{name[:2]}}}:{name}".encode()

    def _ask(self, commands: Sequence[Sequence[bytes]]) -> list[bytes | int | None | OSError]:
        connection = getattr(self._local, "connection", None)
        if connection is None and time.monotonic() < self._retry_at:
            raise ConnectionError("waiting to connect again")
        try:
            if connection is None:
                connection = self._local.connection = _Connection(*self._address, self._timeout, self._login)
            return connection.ask(commands)
        except (OSError, ValueError) as error:
            self._local.connection = None
            self._retry_at = time.monotonic() + self._retry_seconds
            if connection is not None:
                connection.close()
            raise OSError(f"Redis {self._address[0]}:{self._address[1]}: {error}") from error

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        answers = self._ask([[b"GET", self._key(key)] for key in keys])
        return [answer if isinstance(answer, bytes) else None for answer in answers]

    def put(self, keys: Sequence[str], values: Sequence[bytes]) -> list[bool]:
        end = [b"EX", str(self._ttl).encode()] if self._ttl else []
        answers = self._ask([[b"SET", self._key(key), value, *end] for key, value in zip(keys, values)])
        return [answer == b"OK" for answer in answers]

    def has(self, keys: Sequence[str]) -> list[bool]:
        return [answer == 1 for answer in self._ask([[b"EXISTS", self._key(key)] for key in keys])]

    def remove(self, keys: Sequence[str]) -> list[bool]:
        return [answer == 1 for answer in self._ask([[b"UNLINK", self._key(key)] for key in keys])]

    def close(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()


def open_store(store: str, max_bytes: int = 0, prefix: str = "varve-lm", ttl: int = 0, timeout: float = 1):
    """A RedisStore for redis://…, otherwise a FolderStore."""
    if "://" in store:
        return RedisStore(store, prefix, ttl, timeout)
    return FolderStore(store, max_bytes)
