"""What every importer has to do with files of its format.

from hetfeat.testing.importers import ImporterConformance

class TestGemmCsv(ImporterConformance):
    format = "gemm-csv"
    device = "zen4-avx2-2t"
    lines = (b"64,64,64,8,0.5", b"64,64,64,16,0.25")
    header = b"m,n,k,tile,ms"
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from hetfeat.dataset.importers.import_records import Counts, import_records
from hetfeat.dataset.importers.sniff import sniff
from hetfeat.dataset.store import RecordStore


class ImporterConformance:
    """The tests. A subclass has lines of its format, each of them a record.

    Attributes:
        format: Name of the format, one of the table or of a plug-in.
        device: Name of what the records were measured on.
        lines: Two lines or more, a record each, all different.
        header: Beginning of a file, default empty.
    """

    format: ClassVar[str]
    device: ClassVar[str]
    lines: ClassVar[Sequence[bytes]]
    header: ClassVar[bytes] = b""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        """A file of all lines."""
        return self.written(tmp_path / "log.txt", self.lines)

    def written(self, path: Path, lines: Sequence[bytes]) -> Path:
        """A file of lines, behind the header."""
        path.write_bytes(b"\n".join([*filter(None, [self.header]), *lines, b""]))
        return path

    def imported(self, path: Path, out: Path) -> Counts:
        """What an import of a file comes to."""
        return import_records(self.format, self.device, [path], out)

    def test_its_files_are_known_by_their_look(self, file: Path) -> None:
        """So that a file of another format is refused by name."""
        assert sniff(file)[0] == self.format

    def test_each_line_is_a_record_and_the_same_again_a_duplicate(
        self, file: Path, tmp_path: Path
    ) -> None:
        """All are kept, and none twice."""
        counts = self.imported(file, tmp_path / "out")
        assert counts.kept + counts.failed == len(self.lines)
        assert RecordStore.open(tmp_path / "out").read().num_rows == len(self.lines)
        again = self.imported(file, tmp_path / "out")
        assert (again.kept + again.failed, again.duplicates) == (0, len(self.lines))

    @pytest.mark.parametrize("damage", [b"\x00\xff", b"{", b"[]", b"null", b"-1,nan", b'"'])
    def test_a_line_that_is_none_is_counted(self, tmp_path: Path, damage: bytes) -> None:
        """With a reason; the others are kept."""
        path = self.written(tmp_path / "log.txt", [self.lines[0], damage, *self.lines[1:]])
        counts = self.imported(path, tmp_path / "out")
        assert counts.kept + counts.failed == len(self.lines)
        assert counts.skipped == sum(counts.skipped_reasons.values()) == 1

    def test_a_torn_line_costs_itself(self, tmp_path: Path) -> None:
        """As an interrupt leaves one."""
        path = self.written(tmp_path / "log.txt", self.lines)
        path.write_bytes(path.read_bytes()[: -len(self.lines[-1]) // 2])
        counts = self.imported(path, tmp_path / "out")
        assert counts.kept + counts.failed == len(self.lines) - 1
