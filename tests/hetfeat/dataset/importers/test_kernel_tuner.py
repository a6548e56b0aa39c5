"""Reading recorded spaces, whole and damaged."""

import gzip
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import spaces
import stores

from hetfeat.dataset.importers.files import ReadOptions
from hetfeat.dataset.importers.import_records import import_records
from hetfeat.dataset.importers.kernel_tuner import read, read_recording
from hetfeat.dataset.schema import from_table
from hetfeat.dataset.store import RecordStore
from hetfeat.devices.presets import preset
from hetfeat.errors import DataError
from hetfeat.search.recorded import RecordedSpace
from hetfeat.search.warm_start import recorded_prior

SHARED = Path(os.environ.get("HETFEAT_SHARED_DATA", Path(__file__).parents[5] / "shared" / "data"))
HUB_ENTRY = {"time": 2.5, "times": [2.0, 4.0, 3.0], "compile_time": 1.0, "BM": 8}
KEY = "8,8,1,0,32"


def cache_file(folder: Path, content: object, name: str = "cache.json") -> Path:
    return spaces.write(folder / name, content)


class TestReading:
    @pytest.mark.parametrize("name", ["cache.json", "cache.json.gz"])
    def test_a_single_run(self, tmp_path, name):
        found = read_recording(cache_file(tmp_path, spaces.whole(), name))
        assert found.parameters == tuple(spaces.LEVELS)
        assert found.configurations.shape == (5 * 4 * 3 * 2, 5)
        assert (found.device, found.kernel, found.problem) == ("made up", "tiles", ())
        for values, times_ms in zip(found.configurations.tolist(), found.times_ms, strict=True):
            expected = spaces.time_ms(values)
            assert times_ms[0] == expected or (expected is None and np.isnan(times_ms[0]))

    def test_all_timings_of_a_hub_cache(self, tmp_path):
        content = spaces.cache({KEY: 1.0, "16,8,1,0,32": None}, problem_size=[64, 64])
        content["cache"][KEY] = HUB_ENTRY
        found = read_recording(cache_file(tmp_path, content))
        assert found.times_ms[0].tolist() == [2.0, 4.0, 3.0]
        assert np.isnan(found.times_ms[1]).all()
        assert found.problem == (64, 64)

    @pytest.mark.parametrize(("given", "problem"), [(1024, (1024,)), ("callable", ())])
    def test_a_problem_size_that_is_no_list(self, tmp_path, given, problem):
        content = spaces.cache({KEY: 1.0}, problem_size=given)
        assert read_recording(cache_file(tmp_path, content)).problem == problem

    @pytest.mark.parametrize(
        ("time", "error"),
        [
            ("InvalidConfig", "schedule"),
            ("CompilationFailedConfig", "build"),
            ("RuntimeFailedConfig", "run"),
            (1e20, "run"),
            (float("inf"), "run"),
            (float("nan"), "run"),
            (-1.0, "run"),
            (True, "run"),
        ],
    )
    def test_failures_are_failures(self, tmp_path, time, error):
        content = spaces.cache({KEY: 1.0, "16,8,1,0,32": time})
        found = read_recording(cache_file(tmp_path, content))
        assert found.errors == (None, error)
        assert np.isnan(found.times_ms[1]).all()

    def test_the_table_of_uci(self, tmp_path):
        found = read_recording(uci(tmp_path, "A,B,Run1 (ms),Run2 (ms)\n1,2,3.5,4\n1,4,5,6\n"))
        assert found.parameters == ("A", "B")
        assert found.configurations.tolist() == [[1, 2], [1, 4]]
        assert found.times_ms.tolist() == [[3.5, 4.0], [5.0, 6.0]]


def uci(folder: Path, table: str) -> Path:
    path = folder / "uci.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("sgemm_product_dataset/sgemm_product.csv", table)
        archive.writestr("__MACOSX/._sgemm_product.csv", b"\0")
    return path


def torn(content: object, share: float = 0.5) -> str:
    text = json.dumps(content)
    return text[: int(len(text) * share)]


class TestDamage:
    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (torn(spaces.whole()), "not whole JSON"),
            ("", "not whole JSON"),
            ("[1, 2]", "not an object with"),
            ({"cache": {}}, "not an object with"),
            (spaces.cache({}), "its cache is empty"),
            (spaces.cache({KEY: None, "16,8,1,0,32": 1e20}), "no configuration has a valid time"),
            (spaces.cache({KEY: 1.0, "16,8,1": 2.0}), "'16,8,1' has not the 5 parameters"),
            (spaces.cache({KEY: 1.0, "8, 8,1,0,32": 2.0}), "stands in it twice"),
            (spaces.cache({KEY: 1.0}) | {"tune_params_keys": None}, "no names"),
            (spaces.cache({KEY: 1.0}) | {"tune_params_keys": [["BM"]]}, "no names"),
            ("[" * 4000, "not whole JSON"),
            (json.dumps(spaces.whole()).replace("made up", "\\ud800"), "not whole JSON"),
            (spaces.cache({"8,8,1,0,1e999": 1.0}), "a value of another kind"),
        ],
        ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
    )
    def test_a_cache_is_refused_with_the_reason(self, tmp_path, content, says):
        with pytest.raises(DataError) as caught:
            read_recording(cache_file(tmp_path, content))
        assert says in str(caught.value)

    def test_gzip_that_is_cut_off(self, tmp_path):
        path = tmp_path / "cache.json.gz"
        path.write_bytes(gzip.compress(json.dumps(spaces.whole()).encode())[:-20])
        with pytest.raises(DataError, match="damaged or cut off"):
            read_recording(path)

    @pytest.mark.parametrize("table", ["", "A,Run1 (ms)\n", "A,B\n1,2\n", "A,Run1 (ms)\nx,1\n"])
    def test_a_table_without_rows_or_times(self, tmp_path, table):
        with pytest.raises(DataError):
            read_recording(uci(tmp_path, table))

    def test_what_is_no_zip(self, tmp_path):
        (tmp_path / "uci.zip").write_text("A,Run1 (ms)\n1,2\n")
        with pytest.raises(DataError, match="not a zip"):
            read_recording(tmp_path / "uci.zip")

    def test_what_grows_out_of_proportion(self, tmp_path):
        small = ReadOptions(bomb_bytes=1000)
        table = uci(tmp_path, "A,Run1 (ms)\n" + "1,2\n" * 100_000)
        with pytest.raises(DataError, match="grows to 400012 bytes"):
            read_recording(table, options=small)
        cache = tmp_path / "cache.json.gz"
        cache.write_bytes(gzip.compress(b'{"cache": {}}' + b" " * 10**6))
        with pytest.raises(DataError, match="250 times its compressed size"):
            read_recording(cache, options=small)

    def test_no_file(self, tmp_path):
        with pytest.raises(DataError, match="no file"):
            read_recording(tmp_path / "none.json")


class TestInterrupted:
    """A cache is closed when the tuner ends."""

    @pytest.mark.parametrize("end", [",\n", ",\r\n  ", "", "\n"])
    def test_the_configurations_written_so_far_are_read(self, tmp_path, end):
        whole = json.dumps(spaces.whole(), indent=0).rstrip("}\n ") + "}" + end
        found = read_recording(cache_file(tmp_path, whole))
        assert len(found.configurations) == 120

    def test_one_that_is_cut_within_a_configuration_is_not(self, tmp_path):
        with pytest.raises(DataError, match="not whole JSON"):
            read_recording(cache_file(tmp_path, json.dumps(spaces.whole())[:-5]))


VALUES = (1, 1.0, "1", True, 2, 0.5, "half", False, None, [1, 2], 2**70)


class TestValues:
    """Kernel Tuner lets a parameter have any values."""

    def test_of_different_json_are_different(self, tmp_path):
        cache = {str(i): {"p": v, "time": 1.0 + i} for i, v in enumerate(VALUES)}
        content = spaces.cache({}) | {"tune_params_keys": ["p"], "cache": cache}
        path = cache_file(tmp_path, content)
        (batch,) = read([path], "gpu")
        traces = [m.program.trace for m in from_table(batch.records)]
        assert traces == [json.dumps({"p": value}) for value in VALUES]
        space = RecordedSpace(read_recording(path))
        assert space.size == len(VALUES)
        shown = sorted((space.time_s(s), space.values(s)) for s in space.states)
        assert [values for _, values in shown] == [(json.dumps(v),) for v in VALUES]

    def test_are_taken_from_the_key_where_an_entry_lacks_them(self, tmp_path):
        content = spaces.cache({"1,a": 1.0, "2,0.5": 2.0, "2,True": 3.0})
        recording = read_recording(cache_file(tmp_path, content | {"tune_params_keys": ["x", "y"]}))
        assert recording.configurations.tolist() == [[1, 1], [2, 0], [2, 2]]
        assert recording.levels == (None, ("0.5", '"a"', "true"))

    def test_a_prior_is_of_the_same_values_whatever_their_positions(self, tmp_path):
        def space(name, **times):
            content = spaces.cache(times) | {"tune_params_keys": ["vec"]}
            return RecordedSpace(read_recording(cache_file(tmp_path, content, name)))

        other, own = space("a", a=9.0, b=1.0, c=2.0), space("b", b=5.0, c=6.0, d=7.0)
        prior = recorded_prior(other, own)
        assert [own.values(state) for state in prior.ranking] == [('"b"',), ('"c"',)]


class TestImporting:
    def test_into_the_store(self, tmp_path):
        path = cache_file(tmp_path, spaces.whole())
        RecordStore.create(tmp_path / "store").add_device(stores.profile("gpu", "gpu-nvidia"))
        counts = import_records("kernel-tuner", "gpu", [path], tmp_path / "store")
        failed = sum(8 * a * 8 * b > 4096 for a in (1, 2, 4, 8, 16) for b in (1, 2, 4, 8)) * 6
        assert (counts.read, counts.kept, counts.failed) == (120, 120 - failed, failed)
        assert len(counts.tasks) == 1
        measured = list(from_table(RecordStore.open(tmp_path / "store").read()))
        best = min((m for m in measured if m.latency_s), key=lambda m: m.latency_s)
        assert json.loads(best.program.trace) == {"BM": 32, "BN": 16, "V": 2, "S": 1, "K": 32}
        assert best.latency_s == pytest.approx(1e-3)

    def test_the_table_of_uci(self, tmp_path):
        path = uci(tmp_path, "A,B,Run1 (ms),Run2 (ms)\n1,2,3.5,4\n1,4,5,6\n2,4,0,\n")
        counts = import_records("kernel-tuner", "gtx", [path], tmp_path / "store")
        assert (counts.read, counts.kept, counts.failed) == (3, 2, 1)
        (first, *_) = from_table(RecordStore.open(tmp_path / "store").read())
        assert first.latencies_s == pytest.approx((3.5e-3, 4e-3))

    def test_a_device_with_a_preset_has_its_profile(self, tmp_path):
        path = cache_file(tmp_path, spaces.whole())
        import_records("kernel-tuner", "nvidia-v100", [path], tmp_path / "store")
        assert RecordStore.open(tmp_path / "store").devices() == {
            "nvidia-v100": preset("nvidia-v100")
        }

    def test_a_torn_file_is_counted(self, tmp_path):
        (batch,) = read([cache_file(tmp_path, torn(spaces.whole()))], "gpu")
        assert batch.records.num_rows == 0
        ((reason, count),) = batch.skipped.items()
        assert "not whole JSON" in reason
        assert count == 1


@pytest.mark.skipif(not SHARED.is_dir(), reason="no HETFEAT_SHARED_DATA")
@pytest.mark.parametrize(
    ("name", "shape", "failed", "fastest_ms"),
    [
        ("gemm_spaces/GEMM_V100_processed_run1.json.gz", (17956, 1), 0, 11.021312),
        ("conv_spaces/A4000.json.gz", (4362, 32), 161, None),
        ("gemm_spaces/uci_sgemm/sgemm_product_dataset.zip", (241600, 4), 0, 13.25),
    ],
)
def test_shared_recordings(name, shape, failed, fastest_ms):
    found = read_recording(SHARED / name)
    assert found.times_ms.shape == shape
    assert sum(error is not None for error in found.errors) == failed
    if fastest_ms:
        assert np.nanmin(found.times_ms) == pytest.approx(fastest_ms)
