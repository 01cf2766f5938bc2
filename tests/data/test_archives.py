"""Test untrusted archives: only the requested members are read, and no member outside the archive folder."""

from __future__ import annotations

import io
import random
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from rgcn.data.archives import open_archive
from rgcn.errors import DataError


def tar_with(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def zip_with(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, data in members.items():
            zipped.writestr(name, data)
    return path


def read(path: Path, member: str, max_bytes: int = 1000) -> bytes:
    with open_archive(path) as archive, archive.open(member, max_bytes=max_bytes) as stream:
        return stream.read()


@pytest.mark.parametrize("pack", [tar_with, zip_with])
def test_members_are_read_by_name(tmp_path: Path, pack) -> None:
    path = pack(tmp_path / "a.archive", {"top/data/train.txt": b"a\tr\tb\n", "top/setup.py": b"raise SystemExit"})
    assert read(path, "top/data/train.txt") == b"a\tr\tb\n"


@pytest.mark.parametrize("pack", [tar_with, zip_with])
def test_members_are_found_by_base_name_and_the_first_pattern_wins(tmp_path: Path, pack) -> None:
    path = pack(tmp_path / "a.archive", {"x/one.nt": b"", "x/two.n3": b"", "x/three.nt": b""})
    with open_archive(path) as archive:
        assert archive.find(["*.ttl", "*.nt", "*.n3"]) == ["x/one.nt", "x/three.nt"]
        with pytest.raises(DataError, match="has no member"):
            archive.find(["*.owl"])


@pytest.mark.parametrize("pack", [tar_with, zip_with])
@pytest.mark.parametrize("name", ["../evil.txt", "a/../../evil.txt", "/etc/evil.txt", "a/..\\..\\evil.txt"])
def test_members_outside_the_archive_folder_are_refused(tmp_path: Path, pack, name: str) -> None:
    path = pack(tmp_path / "a.archive", {name: b"x"})
    with pytest.raises(DataError, match="leads out of its folder"):
        read(path, name)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("top/train.txt")
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(DataError, match="is a link or not a regular file"):
        read(path, "top/train.txt")


def test_links_in_zip_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as zipped:
        info = zipfile.ZipInfo("train.txt")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        zipped.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="is a link or not a regular file"):
        read(path, "train.txt")


@pytest.mark.parametrize("pack", [tar_with, zip_with])
def test_members_over_the_limit_are_refused(tmp_path: Path, pack) -> None:
    path = pack(tmp_path / "a.archive", {"train.txt": b"0" * 5000})
    with pytest.raises(DataError, match="more than the limit"):
        read(path, "train.txt", max_bytes=4999)
    assert len(read(path, "train.txt", max_bytes=5000)) == 5000


def test_a_file_that_is_not_an_archive_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.tgz"
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match="not a readable archive"):
        read(path, "x")


def test_a_truncated_archive_is_reported(tmp_path: Path) -> None:
    whole = tar_with(tmp_path / "a.tgz", {"train.txt": random.Random(0).randbytes(50_000)})
    whole.write_bytes(whole.read_bytes()[:20_000])
    with pytest.raises(DataError):
        read(whole, "train.txt", max_bytes=10**6)
