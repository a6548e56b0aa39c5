"""Networks of several outputs: which are taken, how each is verified, and bundles of them."""

import json
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import decoders
import numpy as np
import onnx
import pytest
import tflite_files
import torch
from built import build, rewrite, run_py
from door import hetfeat
from onnx import TensorProto, helper

from hetfeat.deploy.bundle import Output, Sample
from hetfeat.deploy.check_on_device import CheckOptions
from hetfeat.deploy.pipeline import deploy
from hetfeat.deploy.runtime import BundleError, LoadedBundle, read_manifest
from hetfeat.deploy.verify import (
    Reference,
    need_output,
    reference_of,
    refuse_wrong_import,
    rows_are_independent,
    verify,
)
from hetfeat.errors import RequestError, WorkFailed
from hetfeat.workloads.example_inputs import computed, values_of
from hetfeat.workloads.network import Network
from hetfeat.workloads.networks import load_network

pytestmark = pytest.mark.tvm


def save_two(path: Path) -> Path:
    """Outputs "a/relu" and "b", of which the first alone needs an operator that TVM lacks."""
    shape = (TensorProto.FLOAT, ("n", 4))
    nodes = [
        helper.make_node("Bernoulli", ["x"], ["odd"]),
        helper.make_node("Relu", ["odd"], ["a/relu"]),
        helper.make_node("Sigmoid", ["x"], ["b"]),
    ]
    given = [helper.make_tensor_value_info("x", *shape)]
    made = [helper.make_tensor_value_info(name, *shape) for name in ("a/relu", "b")]
    opset = [helper.make_opsetid("", 17)]
    graph = helper.make_graph(nodes, "g", given, made)
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


class TestChoosing:
    def test_an_onnx_model_keeps_its_names_and_loses_what_nobody_needs(self, tmp_path):
        from hetfeat.workloads.relax import import_network

        path = save_two(tmp_path / "two.onnx")
        assert load_network(str(path)).output_names(2) == ("a/relu", "b")
        network = load_network(str(path), outputs=["b"])
        assert network.output_names(1) == ("b",)
        (output,) = computed(network, network.arrays())
        np.testing.assert_allclose(output, 1 / (1 + np.exp(-network.inputs[0])), rtol=1e-5)
        import_network(network)  # which fails for all
        assert network.name.startswith(load_network(str(path)).name + "_")

    def test_what_an_inner_graph_reads_stays(self, tmp_path):
        path = save_two(tmp_path / "two.onnx")
        model = onnx.load(str(path))
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 4))
        inner = helper.make_graph([helper.make_node("Neg", ["a/relu"], ["y"])], "i", [], [y])
        always = helper.make_tensor("always", TensorProto.BOOL, [], [True])
        model.graph.initializer.append(always)
        both = helper.make_node("If", ["always"], ["b"], then_branch=inner, else_branch=inner)
        model.graph.node[2].CopyFrom(both)
        path.write_bytes(model.SerializeToString())
        network = load_network(str(path), outputs=["b"])
        assert [node.op_type for node in network.onnx.graph.node] == ["Bernoulli", "Relu", "If"]

    def test_tensors_of_torch_are_numbered_and_what_is_none_is_left_out(self):
        from hetfeat.workloads.relax import import_network

        network = load_network("nets:heads", 2)
        scores, kept = computed(network, network.arrays())
        assert (scores.shape, kept.shape) == ((2, 3), (2, 4))
        assert len(import_network(network)["main"].ret_ty.fields) == 2
        picked = load_network("nets:heads", 2, outputs=["output_1", "output_0"])
        assert picked.output_names(2) == ("output_1", "output_0")
        assert [of.shape for of in computed(picked, picked.arrays())] == [(2, 4), (2, 3)]
        assert [values.mask for values in values_of(picked)] == [False, True]

    def test_a_tflite_file_of_two_gives_either(self, tmp_path):
        from hetfeat.workloads.relax import import_network

        path = tflite_files.save_two_outputs(tmp_path / "two.tflite")
        whole = load_network(str(path))
        assert len(import_network(whole)["main"].ret_ty.fields) == 2
        expected = computed(whole, whole.arrays())
        for place, name in enumerate(whole.output_names(2)):
            network = load_network(str(path), outputs=[name])
            (found,) = computed(network, whole.arrays())
            np.testing.assert_array_equal(found, expected[place])
            assert tuple(import_network(network)["main"].ret_ty.shape) == found.shape

    @pytest.mark.parametrize("wanted", [["c"], ["b", "b"]])
    def test_others_are_refused_with_those_there_are(self, tmp_path, wanted):
        path = save_two(tmp_path / "two.onnx")
        with pytest.raises(RequestError, match=f"--output {wanted[0]} .* among a/relu, b;"):
            load_network(str(path), outputs=wanted)


class Computing(torch.nn.Module):
    def __init__(self, *functions):
        super().__init__()
        self.functions = functions

    def forward(self, x):
        return tuple(function(x) for function in self.functions)


def network_of(*functions) -> Network:
    return Network("n", Computing(*functions), (torch.randn(3, 8),))


def running(*functions) -> SimpleNamespace:
    return SimpleNamespace(run=lambda inputs: tuple(of(inputs[0]) for of in functions))


class TestVerifying:
    def test_each_output_has_its_own_tolerance(self):
        """A thousandth is nothing beside a million, and all of an output of thousandths."""
        reference = reference_of(network_of(lambda x: x * 1e6, lambda x: x * 1e-3), 0)
        large, small = (output.tolerance for output in reference.samples[0].outputs)
        assert large > 1 and small < 1e-5
        found = verify(running(lambda x: x * 1e6 + 1, lambda x: x * 1e-3), reference)
        assert found.max_abs_error == pytest.approx(1, rel=0.2)
        with pytest.raises(WorkFailed, match="output 'output_1' is off by"):
            verify(running(lambda x: x * 1e6, lambda x: x * 1e-3 + 1e-3), reference)
        with pytest.raises(WorkFailed, match="output 'output_1' is off by"):
            refuse_wrong_import(running(lambda x: x * 1e6, lambda x: x), reference)

    def test_one_that_nothing_moves_is_named(self):
        reference = reference_of(network_of(lambda x: x, lambda x: x * 0 + 3), 0)
        assert reference.silent == ("output_1",) and not reference.tells
        assert reference.facts()["verified_on"]["silent"] == ["output_1"]

    @pytest.mark.parametrize("compute", [reference_of, need_output])
    def test_one_that_is_never_a_number_is_refused_by_name(self, compute):
        with pytest.raises(RequestError, match=r"output output_1 is not a finite .* --output"):
            compute(network_of(lambda x: x, lambda x: x / 0 - x / 0), 0)

    @pytest.mark.parametrize("compute", [reference_of, need_output])
    def test_one_that_is_true_or_false_is_refused_by_name(self, compute):
        with pytest.raises(RequestError, match="output output_1 is true or false"):
            compute(network_of(lambda x: x, lambda x: x > 0), 0)

    def test_one_usable_input_is_enough_to_go_on(self):
        computed_on = []
        need_output(network_of(lambda x: computed_on.append(x) or x), 0)
        once = len(computed_on)
        reference_of(network_of(lambda x: computed_on.append(x) or x), 0)
        assert len(computed_on) - once == once + 3

    @pytest.mark.parametrize(
        ("other", "independent"),
        [(lambda x: x * 2, True), (lambda x: x.cumsum(0), False), (lambda x: x.sum(0), False)],
    )
    def test_rows_of_all_must_stand_alone(self, other, independent):
        values = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4)
        outputs = [Output("a", values, 1e-4), Output("b", other(values), 1e-4)]
        reference = Reference(SimpleNamespace(), (Sample([values], outputs),), (), ())
        assert rows_are_independent(running(lambda x: x, other), reference, 3) == independent


@pytest.fixture(scope="module")
def decoder(tmp_path_factory) -> Path:
    return decoders.save(tmp_path_factory.mktemp("decoder") / "decoder.onnx")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("built") / "bundle", "nets:heads", (1, 2))


def in_framework(rows: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Inputs of so many rows for `nets:heads`, and its outputs."""
    network = load_network("nets:heads", rows)
    inputs = [torch.randn(rows, 4).numpy(), torch.ones(rows, 4).numpy()]
    return inputs, computed(network, inputs)


class TestBundle:
    @pytest.mark.parametrize("rows", [1, 3])
    def test_it_returns_all_of_any_number_of_rows(self, built, rows):
        inputs, expected = in_framework(rows)
        loaded = LoadedBundle(built)
        found = loaded.run(inputs)
        assert isinstance(found, tuple) and len(found) == 2
        for name, (value, right) in zip(
            ("output_0", "output_1"), zip(found, expected, strict=True), strict=True
        ):
            np.testing.assert_allclose(value, right, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(loaded.run_by_name(inputs)[name], value)

    def test_its_manifest_lists_them(self, built):
        manifest = read_manifest(built)
        assert manifest["format"] == 3 and "output" not in manifest
        assert [(o["name"], o["shape"], o["dtype"]) for o in manifest["outputs"]] == [
            ("output_0", [1, 3], "float32"),
            ("output_1", [1, 4], "float32"),
        ]
        assert {"sample_output_0.npy", "sample_output_1.npy"} < set(manifest["files"])

    @pytest.mark.slow
    def test_run_py_checks_each_and_writes_them_by_name(self, built, tmp_path):
        line = [
            word for i in range(2) for word in ("--input", str(built / f"sample_input_{i}.npy"))
        ]
        refused = run_py(built, *line, "--output", str(tmp_path / "y.npy"))
        assert refused.returncode == 2 and "for 2 outputs; expected a name" in refused.stderr
        assert run_py(built, *line, "--output", str(tmp_path / "y.npz")).returncode == 0
        with np.load(tmp_path / "y.npz", allow_pickle=False) as stored:
            for place, name in enumerate(stored.files):
                right = np.load(built / f"sample_output_{place}.npy")
                np.testing.assert_allclose(stored[name], right, rtol=1e-4, atol=1e-5)
        assert "computes what it should" in run_py(built, "--check").stdout

    @pytest.mark.slow
    def test_a_wrong_second_output_is_exit_1(self, built, tmp_path):
        copied = Path(shutil.copytree(built, tmp_path / "copy"))
        np.save(copied / "sample_output_1.npy", np.load(copied / "sample_output_1.npy") + 1)
        rewrite(copied)
        assert run_py(copied, "--check").returncode == 1

    def test_hetfeat_run_says_every_shape(self, built, tmp_path, capfd):
        line = [
            word for i in range(2) for word in ("--input", str(built / f"sample_input_{i}.npy"))
        ]
        done = hetfeat(capfd, "run", str(built), *line, "--output", str(tmp_path / "y.npz"))
        assert done.value["shapes"] == {"output_0": [1, 3], "output_1": [1, 4]}

    def test_a_server_answers_by_name(self, built):
        from starlette.testclient import TestClient

        from registry.jobs.serve import _scoring
        from registry.tracking.bundle_flavor import signature

        inputs, expected = in_framework(2)
        given = {f"input_{place}": value.tolist() for place, value in enumerate(inputs)}
        answer = TestClient(_scoring(built)).post("/invocations", json={"inputs": given})
        found = answer.json()["predictions"]
        for name, right in zip(("output_0", "output_1"), expected, strict=True):
            np.testing.assert_allclose(np.float32(found[name]), right, rtol=1e-4, atol=1e-5)
        named = signature(read_manifest(built)).outputs.input_names()
        assert named == ["output_0", "output_1"]

    def test_one_output_is_written_as_older_readers_know_it(self, tmp_path):
        bundle = build(tmp_path / "bundle", "nets:dense")
        manifest = json.loads((bundle / "bundle.json").read_text())
        assert manifest["format"] == 2 and "sample_output.npy" in manifest["files"]
        assert manifest["output"] == {"shape": [1, 16], "dtype": "float32"}
        (only,) = manifest.pop("outputs")
        assert only == {
            "name": "output_0",
            "tolerance": manifest["tolerance"],
            **manifest["output"],
        }
        (bundle / "bundle.json").write_text(json.dumps(manifest))  # as bundles were before
        loaded = LoadedBundle(bundle)
        error, tolerance = loaded.check()
        assert error <= tolerance == only["tolerance"]
        value = np.load(bundle / "sample_input_0.npy")
        assert loaded.run([value]).shape == (1, 16)
        assert list(loaded.run_by_name([value])) == ["output_0"]

    @pytest.mark.parametrize(
        "facts",
        [
            {"outputs": []},
            {"outputs": None},
            {"outputs": [{"name": "a"}]},
            {"format": 2},
            {"outputs": [{"name": "a", "shape": [1], "dtype": "float32", "tolerance": 1}] * 2},
        ],
    )
    def test_manifests_that_contradict_themselves_are_refused(self, built, tmp_path, facts):
        copied = Path(shutil.copytree(built, tmp_path / "copy"))
        rewrite(copied, **facts)
        with pytest.raises(BundleError, match="expected a bundle"):
            read_manifest(copied)


class TestDecoder:
    def test_positions_are_below_the_table_or_the_length_and_masks_are_ones_first(
        self, decoder, tmp_path
    ):
        computed_positions = decoders.save(tmp_path / "computed.onnx", table=False)
        for path, most in ((decoder, decoders.POSITIONS), (computed_positions, decoders.PAST + 1)):
            reference = reference_of(load_network(str(path)), seed=0)
            assert reference.tells
            first, *others = (sample.inputs for sample in reference.samples)
            assert first[1].all() and all(0 < mask.sum() < mask.size for _, mask, *_ in others)
            for ids, _, positions, *caches in (first, *others):
                assert ids.max() < decoders.VOCABULARY and positions.min() >= 0
                assert positions.max() < most
                assert all(cache.std() > 0.1 for cache in caches)
            assert len({int(positions.item()) for _, _, positions, *_ in (first, *others)}) > 1

    @pytest.mark.slow
    @pytest.mark.parametrize("wanted", [(), ("present.1.value", "logits")])
    def test_a_step_deploys_with_its_caches(
        self, decoder, tmp_path, registry_here, device_file, capfd, monkeypatch, wanted
    ):
        import onnxruntime

        peers = ("onnxruntime", "openvino")
        timed_once = partial(deploy, check=CheckOptions(rounds={"quick": 1}, peers=peers))
        monkeypatch.setattr("registry.jobs.deploy.deploy", timed_once)
        line = ("--device", str(device_file), "--network", str(decoder), "--model", "none")
        picks = [word for name in wanted for word in ("--output", name)]
        out = tmp_path / "bundle"
        done = hetfeat(capfd, "deploy", *line, "--trials", "4", "--out", str(out), *picks)
        assert done.code == 0, done.errors
        assert done.value["max_abs_error"] <= done.value["tolerance"]
        assert all(done.value["peers_ms"][peer] for peer in peers)
        loaded = LoadedBundle(out)
        names = list(wanted) or decoders.OUTPUTS
        assert [output["name"] for output in loaded.manifest["outputs"]] == names
        assert loaded.manifest["request"]["outputs"] == list(wanted)

        rng = np.random.default_rng(1)
        shapes = [(1, decoders.HEADS, decoders.PAST, 8)] * len(decoders.CACHES)
        caches = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        mask = np.array([[1] * 5 + [0] * 3])
        inputs = [np.array([[17]]), mask, np.array([[4]]), *caches]
        session = onnxruntime.InferenceSession(str(decoder))
        feed = {value.name: of for value, of in zip(session.get_inputs(), inputs, strict=True)}
        for name, right in zip(names, session.run(names, feed), strict=True):
            np.testing.assert_allclose(loaded.run_by_name(inputs)[name], right, atol=1e-4)
        again = hetfeat(capfd, "deploy", *line, "--trials", "4", "--out", str(out))
        if wanted:
            assert again.code == 2 and "outputs, precision" in again.errors

    def test_a_program_that_loses_rows_of_a_table_is_left_out(self, tmp_path):
        """TVM lays the table out in 64 numbers where a vector of 64 is longer than a row of 16."""
        path = decoders.save(tmp_path / "computed.onnx", table=False)
        error, tolerance = LoadedBundle(build(tmp_path / "bundle", str(path))).check()
        assert error <= tolerance
