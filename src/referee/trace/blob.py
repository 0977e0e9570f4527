"""The text of a source, wherever it lies: in a file that is read where needed, or unpacked in memory."""

from __future__ import annotations

import os
from typing import Protocol


class Blob(Protocol):
    """Bytes that can be read at any offset. ``descriptor``: a file that another process can read them from, if any."""

    size: int
    descriptor: int | None

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer only at the end."""
        ...

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill ``buffer`` from ``offset``; answers how many bytes there were."""
        ...


class MemoryBlob:
    """Bytes in memory."""

    descriptor: int | None = None

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self.size = len(data)

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``."""
        return bytes(self._data[offset : offset + size])

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill ``buffer`` from ``offset``; answers how many bytes there were."""
        found = self._data[offset : offset + len(buffer)]
        buffer[: len(found)] = found
        return len(found)


class FileBlob:
    """A file that stays open as long as this object lives; several processes may read it at once."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor: int | None = descriptor
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``."""
        parts = []
        while size > 0:
            part = os.pread(self._descriptor, size, offset)
            if not part:
                break
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill ``buffer`` from ``offset``; answers how many bytes there were."""
        done = 0
        while done < len(buffer):
            count = os.preadv(self._descriptor, [buffer[done:]], offset + done)
            if count == 0:
                break
            done += count
        return done

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
