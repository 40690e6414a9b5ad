"""The file under a dump that is being written.

HDF5 cannot be told that a disk is full: after a failed write its own close fails as well, and a second one crashes the process. It
is therefore given this file, which remembers the first failure and accepts everything after it; the writer asks for the failure.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
from pathlib import Path

from edge0verify.records.errors import InputError


class PartialFile(io.RawIOBase):
    """`NAME.partial`, locked while it is written; the file object that h5py writes through."""

    def __init__(self, path: Path) -> None:
        """Create it, replacing what a killed run left. InputError while another process writes it; OSError from the system."""
        super().__init__()
        self.path, self.failure = path, None
        self._at = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise InputError(f"{path}: another process is writing this dump") from None
        os.ftruncate(self._fd, 0)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}.get(whence)
        self._at = offset + (os.fstat(self._fd).st_size if base is None else base)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer) -> int:
        view = memoryview(buffer).cast("B")
        data = os.pread(self._fd, len(view), self._at)
        view[: len(data)] = data
        view[len(data) :] = bytes(len(view) - len(data))
        self._at += len(view)
        return len(view)

    def write(self, data) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view) and self.failure is None:
            try:
                done += os.pwrite(self._fd, view[done:], self._at + done)
            except OSError as wrong:
                self.failure = wrong
        self._at += len(view)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        size = self._at if size is None else size
        if self.failure is None:
            try:
                os.ftruncate(self._fd, size)
            except OSError as wrong:
                self.failure = wrong
        return size

    def sync(self) -> None:
        """To the disk itself; the first failure so far is raised here."""
        if self.failure is None:
            os.fsync(self._fd)
        if self.failure is not None:
            raise self.failure

    def release(self) -> None:
        """Give up the lock and the handle."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def reason(wrong: OSError) -> str:
    """The system's reason in words."""
    if wrong.errno in (errno.ENOSPC, errno.EDQUOT):
        return "no space left on the disk"
    if wrong.errno == errno.EFBIG:
        return "file size limit reached"
    return os.strerror(wrong.errno) if wrong.errno else str(wrong)
