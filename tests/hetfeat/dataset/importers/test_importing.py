"""What every import has in common: counting, duplicates, devices, refusals, damaged files."""

import codecs
import gzip
import io
import json
import random
import zipfile
from collections import Counter
from dataclasses import replace

import ansor_lines
import pytest
import stores
from hypothesis import given, settings
from hypothesis import strategies as st

import mlproject
from hetfeat.dataset.importers import import_records
from hetfeat.dataset.importers.base import batch_of
from hetfeat.dataset.importers.files import ReadOptions, read_lines
from hetfeat.dataset.importers.key_set import KeySet
from hetfeat.dataset.importers.sniff import look
from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore
from hetfeat.dataset.store_config import StoreConfig
from hetfeat.errors import RequestError
from hetfeat.testing.importers import ImporterConformance
from registry.cli import app

DEVICE = stores.profile("a")


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """Imports batches into one store, as if an importer had read them."""
    (tmp_path / "log").write_text('{"i": []}\n')

    def do(batches, **named) -> import_records.Counts:
        monkeypatch.setattr(import_records, "importer", lambda name: lambda found, device: batches)
        log, out = tmp_path / "log", tmp_path / "store"
        return import_records.import_records("ansor", "a", [log], out, **named)

    return do


def measurements(*seeds: int, failed: bool = False):
    made = [stores.programs(stores.task(1), 1, seed)[0] for seed in seeds]
    return [stores.measured(program, DEVICE, failed) for program in made]


def batch(*seeds: int, profile=DEVICE, failed: bool = False, **skipped: int):
    return batch_of(measurements(*seeds, failed=failed), Counter(skipped), profile)


class TestAnsorConforms(ImporterConformance):
    format, device = "ansor", "a"
    lines = tuple(
        json.dumps(ansor_lines.on_cpu(64, 32, 128, random.Random(seed))).encode()
        for seed in range(3)
    )


class TestCounting:
    def test_each_entry_is_one_of_four(self, imported, tmp_path):
        counts = imported(
            [batch(1, 2, torn=3), batch(2, 3, 3), batch(4, failed=True, torn=1, odd=1), batch()]
        )
        found = counts.summary()
        assert found.pop("seconds") >= 0
        assert found == {
            "read": 11,
            "kept": 3,
            "failed": 1,
            "skipped": 5,
            "duplicates": 2,
            "tasks": 1,
            "skipped_reasons": {"torn": 4, "odd": 1},
        }
        kept = list(from_table(RecordStore.open(tmp_path / "store").read()))
        assert kept == measurements(1, 2, 3) + measurements(4, failed=True)

    def test_what_the_store_holds_is_a_duplicate(self, imported, tmp_path):
        imported([batch(1, 2)])
        RecordStore.open(tmp_path / "store").append(measurements(5))
        again = imported([batch(2, 3, 5)])
        assert (again.kept, again.duplicates) == (1, 2)

    def test_another_device_may_have_measured_the_same(self, imported, tmp_path):
        (program,) = stores.programs(stores.task(1), 1, 1)
        RecordStore.create(tmp_path / "store").append(
            [stores.measured(program, stores.profile("b"))]
        )
        assert imported([batch(1)]).kept == 1

    def test_an_interrupt_keeps_what_was_read(self, imported, tmp_path):
        def interrupted():
            yield batch(1)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            imported(interrupted())
        assert RecordStore.open(tmp_path / "store").read().num_rows == 1

    def test_shards_are_written_before_all_is_read(self, imported, tmp_path):
        small = StoreConfig(buffer_bytes=2000, shard_rows=3)
        counts = imported([batch(seed) for seed in range(20)], options=small)
        found = RecordStore.open(tmp_path / "store").shards()
        assert 1 < len(found) < 20
        assert sum(shard["rows"] for shard in found) == counts.kept == 20


class TestDevices:
    def test_a_new_device_is_as_its_records_say(self, imported, tmp_path):
        imported([batch(1)])
        assert RecordStore.open(tmp_path / "store").devices() == {"a": DEVICE}

    @pytest.mark.parametrize(
        ("other", "said"),
        [
            (replace(DEVICE, vector_unit_bytes=64), "vector_unit_bytes 64, not 32"),
            (replace(DEVICE, target={"kind": "cuda"}), "kind cuda, not llvm"),
        ],
    )
    def test_records_of_other_hardware_are_skipped(self, imported, other, said):
        counts = imported([batch(1), batch(2, 3, profile=other), batch(4)])
        assert (counts.kept, counts.skipped) == (2, 2)
        assert counts.skipped_reasons == {f"measured on other hardware ({said})": 2}

    def test_what_is_not_known_does_not_differ(self, imported):
        vague = replace(DEVICE, vector_unit_bytes=None, target={"kind": "llvm", "mcpu": "znver4"})
        assert imported([batch(1), batch(2, profile=vague), batch(3, profile=None)]).kept == 3


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), max_size=20)))
def test_seen_is_a_set(batches):
    seen, known = KeySet(), set()
    for numbers in batches:
        expected = []
        for number in numbers:
            expected.append(number not in known)
            known.add(number)
        keys = [f"{number * 0x0123456789ABCDEF % 2**64:016x}{number:08x}" for number in numbers]
        assert seen.add(keys).tolist() == expected


class TestLines:
    """`read_lines` on what may lie on a disk."""

    def read(self, path, data: bytes, options: ReadOptions = ReadOptions()):
        path.write_bytes(data)
        skipped: Counter[str] = Counter()
        chunks = read_lines(path, skipped, 100, options)
        return [line for chunk in chunks for line in chunk], skipped

    @settings(deadline=None)
    @given(data=st.lists(st.sampled_from([b"a", b"\n", b" ", b"b" * 99, b"c" * 101])))
    def test_as_splitting_the_whole_would(self, tmp_path_factory, data):
        whole = b"".join(data)
        expected = [line for line in whole.split(b"\n") if line.strip()]
        folder = tmp_path_factory.mktemp("lines")
        for written in (whole, gzip.compress(whole)):
            lines, skipped = self.read(folder / "log", written, ReadOptions(chunk_bytes=64))
            assert lines == [line for line in expected if len(line) <= 100]
            long = [line for line in expected if len(line) > 100]
            assert skipped.total() == len(long)

    def test_a_line_of_ten_megabytes_is_one_entry(self, tmp_path):
        lines, skipped = self.read(tmp_path / "log", b"a\n" + b"x" * 10_000_000 + b"\nb")
        assert (lines, skipped) == ([b"a", b"b"], {"line longer than 100 bytes": 1})

    def test_damaged_gzip_is_one_entry(self, tmp_path):
        whole = gzip.compress(b"".join(b"%d\n" % i for i in range(100_000)), 1)
        for data in (whole[:-20_000], whole[:60_000] + b"damage" + whole[60_006:]):
            lines, skipped = self.read(tmp_path / "log", data)
            assert skipped == {"rest of a file that is damaged or cut off": 1}
            assert lines[:100] == [b"%d" % i for i in range(100)]

    def test_a_bomb_is_left_after_its_first_part(self, tmp_path):
        small = ReadOptions(bomb_bytes=2**21)
        for unit in (b"x" * 2**20, b"line\n" * 2**18):
            lines, skipped = self.read(tmp_path / "log", gzip.compress(unit * 40), small)
            assert skipped["rest of a file of more than 250 times its compressed size"] == 1
            assert sum(map(len, lines)) < 20 * len(unit)


def made_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a", "b")
    return buffer.getvalue()


FOREIGN = {
    b"": "an empty file",
    b"\n \n": "an empty file",
    b'{"input": ["llvm", "dense", [], {}], "config": {}, "result": [[1.0], 0]}': "an AutoTVM log",
    b'[0, [[[["GetBlock", [], ["a"], ["b0"]]], []], [1.0], {}, []]]': "MetaSchedule records",
    b'["7445998", "U/cAAAAA"]': "MetaSchedule workloads",
    b'{"device_name": "A4000", "cache": {}}': "a Kernel Tuner cache",
    made_zip(): "a ZIP archive",
    b"PAR1\0\0": "Parquet",
    b"SQLite format 3\0": "a SQLite database",
    b"\x7fELF\0": "a binary file",
    b"\x1f\x8b\x08 not so": "gzip that is damaged",
    b"time,latency\n1,2\n": "text that begins with 'time,latency'",
}


class TestEncodings:
    """Windows' editors and shells add marks and other line ends; gzip is concatenated."""

    LINES = tuple(ansor_lines.log(8, 1))

    @pytest.mark.parametrize(
        "data",
        [
            codecs.BOM_UTF8 + b"\r\n".join(LINES),
            gzip.compress(codecs.BOM_UTF8 + b"\n".join(LINES)),
            gzip.compress(b"") + b"".join(gzip.compress(line + b"\n") for line in LINES),
            gzip.compress(b"") * 3 + gzip.compress(b"\n".join(LINES)) + bytes(512),
        ],
        ids=["mark", "mark in gzip", "members", "padded"],
    )
    def test_every_line_is_a_record(self, tmp_path, data):
        (tmp_path / "log").write_bytes(data)
        counts = import_records.import_records("ansor", "a", [tmp_path / "log"], tmp_path / "store")
        assert (counts.read, counts.skipped) == (8, 0)

    def test_utf_16_is_said(self, tmp_path):
        (tmp_path / "log").write_bytes(b"\n".join(self.LINES).decode().encode("utf-16"))
        assert look(tmp_path / "log") == (None, "text in UTF-16, not UTF-8")


class TestNothingKept:
    def test_is_no_success(self, tmp_path, capfd):
        (tmp_path / "log").write_bytes(b'{"i": 1}\n{"i": 2}\n{"r": nan}\n')
        assert import_ansor(tmp_path / "log", tmp_path / "store") == 1
        out, err = capfd.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "2 x record of another form; 1 x number that is not finite" in err

    def test_duplicates_alone_are_one(self, tmp_path):
        (tmp_path / "log").write_bytes(b"\n".join(ansor_lines.log(4, 1)))
        assert [import_ansor(tmp_path / "log", tmp_path / "store") for _ in range(2)] == [0, 0]

    @pytest.mark.parametrize("kind", ["opencl", "vulkan"])
    def test_a_target_of_no_family_is_refused_before_a_store_is_made(self, tmp_path, capfd, kind):
        lines = b"\n".join(ansor_lines.log(4, 1)).replace(b"llvm -", f"{kind} -".encode())
        (tmp_path / "log").write_bytes(lines)
        assert import_ansor(tmp_path / "log", tmp_path / "store") == 2
        assert "a target other than llvm, cuda" in capfd.readouterr().err
        assert not (tmp_path / "store").exists()


class TestRefusals:
    @pytest.mark.parametrize("packed", [bytes, gzip.compress])
    @pytest.mark.parametrize("data", FOREIGN, ids=list(FOREIGN.values()))
    def test_another_format_is_named(self, tmp_path, capfd, data, packed):
        (tmp_path / "log.json").write_bytes(packed(data))
        code = import_ansor(tmp_path / "log.json", tmp_path / "store")
        out, err = capfd.readouterr()
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert FOREIGN[data] in err
        assert "choose --format (ansor" in err
        assert not (tmp_path / "store").exists()

    def test_a_folder_without_a_file_of_the_format(self, tmp_path, capfd):
        (tmp_path / "logs" / "deep").mkdir(parents=True)
        assert import_ansor(tmp_path / "logs", tmp_path / "store") == 2
        (tmp_path / "logs" / "deep" / "log").write_text("a,b")
        assert import_ansor(tmp_path / "logs", tmp_path / "store") == 2
        assert "text that begins" in capfd.readouterr().err

    @pytest.mark.parametrize("name", ["Device", "a/b", "../up"])
    def test_a_name_that_is_none(self, tmp_path, name):
        (tmp_path / "log").write_text('{"i": []}')
        with pytest.raises(RequestError, match="device name"):
            import_records.import_records("ansor", name, [tmp_path / "log"], tmp_path / "store")

    def test_a_path_with_nothing_there(self, tmp_path, capfd):
        assert import_ansor(tmp_path / "nowhere", tmp_path / "store") == 2
        assert "nowhere" in capfd.readouterr().err

    def test_other_files_of_a_folder_are_counted(self, imported, tmp_path, monkeypatch):
        logs = tmp_path / "logs"
        logs.mkdir()
        for number, data in enumerate(FOREIGN):
            (logs / str(number)).write_bytes(data)
        (logs / "good").write_text('{"r": []}')
        seen = []
        monkeypatch.setattr(
            import_records, "importer", lambda name: lambda found, device: seen.extend(found) or []
        )
        counts = import_records.import_records("ansor", "a", [logs], tmp_path / "store")
        assert seen == [logs / "good"]
        assert counts.skipped == len(FOREIGN)


def import_ansor(path, store) -> int:
    arguments = ["--format", "ansor", "--device", "a", "--out", str(store), "--json"]
    return app.run(mlproject.cli, ["import", str(path), *arguments])


def test_the_command_prints_the_counts(tmp_path, capfd):
    lines = [*ansor_lines.log(20, 1), b"torn"]
    (tmp_path / "log").write_bytes(b"\n".join([*lines, lines[0]]))
    assert import_ansor(tmp_path / "log", tmp_path / "store") == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert err == ""
    assert (
        found["read"]
        == 22
        == sum(found[key] for key in ("kept", "failed", "skipped", "duplicates"))
    )
    assert found["skipped_reasons"] == {"not JSON": 1}
    assert found["duplicates"] >= 1
    assert {"tasks", "seconds"} <= set(found)


def test_paths_may_come_as_one_with_commas_and_an_empty_one_is_none(tmp_path, capfd):
    for number, name in enumerate(("one", "two", "a,comma")):
        (tmp_path / name).write_bytes(b"\n".join(ansor_lines.log(4, number)))
    both = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    assert import_ansor(both, tmp_path / "store") == 0
    assert import_ansor(tmp_path / "a,comma", tmp_path / "store") == 0
    found = [json.loads(line)["read"] for line in capfd.readouterr().out.splitlines()]
    assert found == [8, 4]
    assert import_ansor("", tmp_path / "other") == 2
    assert "PATH..." in capfd.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("begin", [b'{"i": [', b'# comment\n{"r":', b"\n" + b'  { "v" : 1'])
def test_ansor_is_known(tmp_path, begin):
    (tmp_path / "log").write_bytes(begin)
    assert look(tmp_path / "log")[0] == "ansor"


def test_no_json_is_needed_for_a_look(tmp_path):
    (tmp_path / "log").write_bytes(b'{"i": [[' + b"x" * 10**6)
    assert look(tmp_path / "log")[0] == "ansor"
