"""A lake in an object store, by URL: ``s3://``, ``gs://``, ``az://`` through Arrow's file systems.

Credentials are found where each provider's own tools find them. S3: the usual AWS variables and
files, ``AWS_ENDPOINT_URL`` for a compatible server. Google: application default credentials. Azure:
``az://CONTAINER/PATH`` with ``AZURE_STORAGE_ACCOUNT_NAME`` and, unless the machine has an identity,
``AZURE_STORAGE_ACCOUNT_KEY``.
"""

import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from toolverdict.collector.errors import LakeError
from toolverdict.collector.lake.store import Entry, LocalStore, Store, busy

SCHEMES: Final = ("s3", "gs", "az")

CLAIM_S: Final = 3600.0
"""Seconds after which a claim to the upkeep of a lake is taken for one of a dead process."""

_CLAIMS: Final = ".upkeep"
_S3_ATTEMPTS: Final = 3


class ObjectStore:
    """A lake below a URL."""

    def __init__(self, url: str) -> None:
        """Find the file system of a URL.

        Raises:
            LakeError: when it is no URL of a store, or the store cannot be reached.
        """
        self.location: Final = url
        try:
            self._files, root = _file_system(url)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise LakeError(f"{url} cannot be opened ({error}); give s3://BUCKET/PATH") from error
        self._root: Final = root.rstrip("/")

    scratch: Final = None

    def list(self, folder: str, bucket: str | None = None) -> list[Entry]:
        """Files below a folder, sorted by name; none when there is no such folder."""
        selector = fs.FileSelector(self._path(folder), allow_not_found=True, recursive=True)
        return sorted(
            Entry(info.path[len(self._root) + 1 :], info.size or 0)
            for info in self._files.get_file_info(selector)
            if info.type == fs.FileType.File and (bucket is None or f"/{bucket}/" in info.path)
        )

    def read(self, name: str) -> bytes:
        """The content of a small file."""
        with self.open(name) as file:
            return file.read()

    def open(self, name: str) -> pa.NativeFile:
        """A file for reading anywhere in it."""
        return self._files.open_input_file(self._path(name))

    def write(self, name: str, fill: Callable[[pa.NativeFile], object]) -> None:
        """Make or replace a file, whole or not at all."""
        # By way of a local file: a stream that fails half-way must not become an object.
        with tempfile.TemporaryDirectory(prefix="toolverdict-") as folder:
            local = str(Path(folder) / "object")
            with pa.OSFile(local, "wb") as sink:
                fill(sink)
            self._upload(local, self._path(name))

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that are gone already are no error."""
        for name in names:
            with suppress(FileNotFoundError):
                self._files.delete_file(self._path(name))

    def delete_folder(self, folder: str) -> None:
        """Delete all below a folder, one object after the other."""
        self.delete(entry.name for entry in self.list(folder))

    @contextmanager
    def upkeep(self) -> Iterator[None]:
        """Claim the lake: write an object, then look whether another claim is there.

        Of two that claim at one time at least one sees the other, as stores list what was
        written; both may give way.
        """
        mine = f"{_CLAIMS}/{time.time_ns():020d}-{secrets.token_hex(8)}"
        self.write(mine, lambda sink: sink.write(b"claim\n"))
        try:
            ages = {entry.name: self._written_s(entry.name) for entry in self.list(_CLAIMS)}
            now_s = ages.pop(mine, None)
            if now_s is None or any(age > now_s - CLAIM_S for age in ages.values() if age):
                raise busy(self.location)
            self.delete(ages)
            yield
        finally:
            self.delete([mine])

    def _written_s(self, name: str) -> float | None:
        """When the store says that an object was written: one clock for all claims."""
        written = self._files.get_file_info(self._path(name)).mtime_ns
        return None if written is None else written / 1e9

    def _upload(self, local: str, path: str) -> None:
        with pa.memory_map(local) as file:
            content = file.read_buffer()
            stream = self._files.open_output_stream(path)
            stream.write(content)
            stream.close()
            if self._files.get_file_info(path).size != content.size:
                raise OSError(f"{self.location} did not keep {path} as it was sent")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def store_of(location: Path | str) -> Store:
    """The store of a folder, or of a URL when it is text with one of the schemes."""
    return ObjectStore(str(location)) if is_url(location) else LocalStore(Path(location))


def is_url(location: Path | str) -> bool:
    """Whether a lake is in an object store."""
    return isinstance(location, str) and location.partition("://")[0] in SCHEMES


def _file_system(url: str) -> tuple[fs.FileSystem, str]:
    parts = urlsplit(url)
    if not parts.netloc:
        raise ValueError("no bucket in it")
    if parts.scheme == "s3" and not parts.query and "@" not in parts.netloc:
        return _s3(url), f"{parts.netloc}{parts.path}"
    if parts.scheme != "az":
        return fs.FileSystem.from_uri(url)
    account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if not account:
        raise ValueError("AZURE_STORAGE_ACCOUNT_NAME is not set")
    key = os.environ.get("AZURE_STORAGE_ACCOUNT_KEY")
    return fs.AzureFileSystem(account, account_key=key), f"{parts.netloc}{parts.path}"


def _s3(url: str) -> fs.S3FileSystem:
    """S3 that says after seconds, not minutes, that it cannot be reached: callers try again."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint is None and region is None:
        # Asks the bucket, which takes a store that answers.
        found, _ = fs.FileSystem.from_uri(url)
        region = found.region if isinstance(found, fs.S3FileSystem) else None
    server = urlsplit(endpoint or "")
    return fs.S3FileSystem(
        region=region or "us-east-1",
        scheme="http" if server.scheme == "http" else "https",
        endpoint_override=server.netloc or None,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_S3_ATTEMPTS),
    )
