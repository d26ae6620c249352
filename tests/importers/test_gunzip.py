import gzip
import io
import os

import pytest

from graphdiag.importers.gunzip import Gunzip

DATA = b"".join(b"line %d of a log\n" % i for i in range(20_000)) + os.urandom(5000)
ZIPPED = gzip.compress(DATA)


def read(data: bytes) -> tuple[bytes, Exception | None]:
    stream, target, found = Gunzip(io.BytesIO(data)), bytearray(4096), b""
    try:
        while size := stream.readinto(target):
            found += target[:size]
    except (EOFError, OSError) as error:
        return found, error
    return found, None


def test_whole_files_of_one_member_or_several() -> None:
    assert read(ZIPPED) == (DATA, None)
    assert read(ZIPPED + ZIPPED) == (DATA + DATA, None)
    assert read(ZIPPED + bytes(3000)) == (DATA, None)  # padded to a block
    with io.BufferedReader(Gunzip(io.BytesIO(ZIPPED))) as stream:
        assert stream.read() == DATA
        assert stream.read(1) == b""


@pytest.mark.parametrize("share", [0.2, 0.5, 0.99])
def test_a_cut_file_gives_all_that_stands_before_the_cut(share: float) -> None:
    data = ZIPPED[: int(len(ZIPPED) * share)]
    found, error = read(data)
    assert isinstance(error, EOFError)
    assert DATA.startswith(found)
    assert len(found) > len(DATA) * (share - 0.15)


def test_damage_is_an_error() -> None:
    broken = bytearray(ZIPPED)
    broken[len(broken) // 2 : len(broken) // 2 + 200] = bytes(200)
    _, error = read(bytes(broken))
    assert isinstance(error, OSError)
    _, error = read(ZIPPED[:-8] + bytes(8))
    assert isinstance(error, OSError)
