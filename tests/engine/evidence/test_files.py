"""Files of measurements: canonical JSON, written next to what they replace."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import pytest

from rlverify.evidence.files import canonical_json, check_writable, prepare_working_folder, sealed, write_files
from rlverify.records.errors import EvidenceError


def test_an_infinite_number_is_a_word() -> None:
    content = {"claimed": (0.0, math.inf), "others": [[-math.inf], 1.5, "inf", 10**400]}
    assert json.loads(canonical_json(content)) == {"claimed": [0.0, "inf"], "others": [["-inf"], 1.5, "inf", 10**400]}


def test_what_is_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range float values"):
        canonical_json({"mean": math.nan})


def test_a_seal_is_the_start_of_the_sha_256_of_the_content() -> None:
    """As ``sha256sum`` computes it of the three lines without the digest."""
    assert sealed({"a": 1}) == '{\n  "a": 1,\n  "digest": "5e36b6560513586c"\n}\n'


@pytest.mark.usefixtures("ascii_locale")
def test_files_are_written_into_folders_that_are_made_for_them(tmp_path: Path) -> None:
    write_files(tmp_path, {"a/b/c.txt": "first\n", "a/b/d/e.txt": "é\n"})
    assert (tmp_path / "a/b/c.txt").read_bytes() == b"first\n"
    assert (tmp_path / "a/b/d/e.txt").read_bytes() == b"\xc3\xa9\n"


def test_files_are_prepared_next_to_what_they_replace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for temporary files may be on another disk, from which no file can be moved."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    check_writable(tmp_path / "reports")
    write_files(tmp_path / "reports", {"a.txt": "new"})
    assert (tmp_path / "reports/a.txt").read_text() == "new"


def test_a_file_that_cannot_be_replaced_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    (tmp_path / "reports" / "a.txt" / "inside").mkdir(parents=True)
    with pytest.raises(EvidenceError, match=r"reports: cannot be written: .*directory"):
        write_files(tmp_path / "reports", {"a.txt": "new"})


def test_git_ignores_a_working_folder(tmp_path: Path) -> None:
    prepare_working_folder(tmp_path / "made" / "work")
    assert [path.name for path in (tmp_path / "made" / "work").iterdir()] == [".gitignore"]
    assert (tmp_path / "made" / "work" / ".gitignore").read_text() == "*\n"
    (tmp_path / "file").touch()
    with pytest.raises(EvidenceError, match="file/work: cannot be written"):
        prepare_working_folder(tmp_path / "file" / "work")
