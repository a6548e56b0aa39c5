"""Networks in files: ONNX with and without external data, exported programs, TFLite."""

import gc
import io
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from nets import tiny
from onnx import TensorProto, helper, numpy_helper

from hetfeat.errors import DataError, RequestError
from hetfeat.workloads.networks import load_network, network_slug
from hetfeat.workloads.onnx_files import onnx_network

pytestmark = pytest.mark.tvm


def tensor(name: str, *shape: int | str):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def save(path: Path, nodes, weights=(), rows: int | str = "n", outputs: int = 1, domains=()):
    """A model of one input, float32 [rows, 4]."""
    made = [tensor(f"y{i}", rows, 4) for i in range(outputs)]
    graph = helper.make_graph(nodes, "g", [tensor("x", rows, 4)], made, list(weights))
    opsets = [helper.make_opsetid(domain, 17) for domain in ("", *domains)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def doubling(tmp_path) -> Path:
    weight = numpy_helper.from_array(2 * np.eye(4, dtype=np.float32), "w")
    product = helper.make_node("MatMul", ["x", "w"], ["y0"])
    return save(tmp_path / "Doubling.onnx", [product], [weight])


@pytest.fixture
def external(tmp_path) -> Path:
    """Weights in weights/data.bin beside the model."""
    folder = tmp_path / "model"
    (folder / "weights").mkdir(parents=True)
    (folder / "weights" / "data.bin").write_bytes((2 * np.eye(4, dtype=np.float32)).tobytes())
    return point_to(folder / "m.onnx", "weights/data.bin")


def cached(model: Path, cache: Path, folder: str) -> Path:
    """The model and its data as Hugging Face keeps them: links to files named by their digests."""
    snapshot = cache / "snapshots" / "0a1b" / folder
    (snapshot / "weights").mkdir(parents=True)
    (cache / "blobs").mkdir()
    for name in ("weights/data.bin", model.name):
        blob = cache / "blobs" / name.replace("/", "")
        shutil.copyfile(model.parent / name, blob)
        link = snapshot / name
        link.symlink_to(os.path.relpath(blob, link.parent))
    return snapshot / model.name


def point_to(path: Path, location: str) -> Path:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 4])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    return save(path, [helper.make_node("MatMul", ["x", "w"], ["y0"])], [weight])


class TestOnnx:
    @pytest.mark.parametrize("batch", [1, 3])
    def test_the_open_batch_is_set(self, doubling, batch):
        network = load_network(str(doubling), batch)
        assert network.inputs[0].shape == (batch, 4)
        (output,) = network.module(*network.inputs)
        np.testing.assert_array_equal(output, 2 * network.inputs[0])

    def test_external_data_beside_the_model_is_read(self, external):
        network = load_network(str(external))
        (output,) = network.module(*network.inputs)
        np.testing.assert_array_equal(output, 2 * network.inputs[0])

    @pytest.mark.parametrize("location", ["../secret", "weights/../../secret", "/etc/passwd", ""])
    def test_external_data_elsewhere_is_refused(self, external, location):
        (external.parent.parent / "secret").write_bytes(bytes(64))
        with pytest.raises(DataError, match="in the folder of the model"):
            load_network(str(point_to(external, location)))

    @pytest.mark.parametrize("dtype", [np.float16, np.uint8])
    def test_one_that_is_not_of_float32_is_refused_by_name(self, tmp_path, dtype):
        weight = numpy_helper.from_array(np.eye(4, dtype=dtype), "h")
        cast = helper.make_node("Cast", ["h"], ["w"], to=TensorProto.FLOAT)
        product = helper.make_node("MatMul", ["x", "w"], ["y0"])
        path = save(tmp_path / "half.onnx", [cast, product], [weight])
        with pytest.raises(RequestError, match=f"half_.* of {np.dtype(dtype)}; expected float32"):
            load_network(str(path))

    @pytest.mark.parametrize(("key", "value"), [("offset", "-1"), ("length", "some")])
    def test_external_data_that_is_nowhere_is_one_line(self, external, key, value):
        model = onnx.load(str(external), load_external_data=False)
        model.graph.initializer[0].external_data.add(key=key, value=value)
        external.write_bytes(model.SerializeToString())
        for read in (load_network, network_slug):
            with pytest.raises(DataError, match="cannot be read"):
                read(str(external))

    def test_external_data_of_a_function_is_looked_for_too(self, external):
        model = onnx.load(str(external), load_external_data=False)
        away = TensorProto(name="v", data_type=TensorProto.FLOAT, dims=[1])
        away.data_location = TensorProto.EXTERNAL
        away.external_data.add(key="location", value="../secret")
        node = helper.make_node("Constant", [], ["v"], value=away)
        model.functions.append(
            helper.make_function("d", "F", [], ["v"], [node], model.opset_import)
        )
        external.write_bytes(model.SerializeToString())
        with pytest.raises(DataError, match="in the folder of the model"):
            load_network(str(external))

    @pytest.mark.parametrize("linked", ["weights", "weights/data.bin"])
    def test_external_data_behind_a_link_is_refused(self, external, linked):
        path = external.parent / linked
        moved = external.parent.parent / "moved"
        shutil.move(path, moved)
        path.symlink_to(moved)
        with pytest.raises(DataError, match="reached by no link"):
            load_network(str(external))

    @pytest.mark.parametrize("folder", ["", "onnx"])
    def test_links_within_a_hugging_face_cache_are_followed(self, external, tmp_path, folder):
        path = cached(external, tmp_path / "hub" / "models--o--n", folder)
        network = load_network(str(path))
        (output,) = network.module(*network.inputs)
        np.testing.assert_array_equal(output, 2 * network.inputs[0])
        assert network_slug(str(path)) == network_slug(str(external))

    def test_data_behind_links_that_protobuf_does_not_take_is_copied(self, external, tmp_path):
        path = cached(external, tmp_path / "hub" / "models--o--n", "onnx")
        network = onnx_network(path, "n", 1, 0, most_bytes=1)
        (output,) = network.module(*network.inputs)
        np.testing.assert_array_equal(output, 2 * network.inputs[0])
        copied = network.module.files.path
        assert copied.is_file() and not copied.is_relative_to(tmp_path)
        del network
        gc.collect()
        assert not copied.parent.exists()

    @pytest.mark.parametrize("goal", ["models--o--other/blobs/data", "refs"])
    def test_links_that_leave_the_cache_are_refused(self, external, tmp_path, goal):
        hub = tmp_path / "hub"
        path = cached(external, hub / "models--o--n", "")
        (hub / goal).parent.mkdir(parents=True, exist_ok=True)
        (hub / goal).write_bytes(bytes(64))
        data = path.parent / "weights" / "data.bin"
        data.unlink()
        data.symlink_to(hub / goal)
        with pytest.raises(DataError, match="no link that leaves its Hugging Face cache") as error:
            load_network(str(path))
        assert "\n" not in str(error.value)

    def test_its_slug_follows_its_content_and_its_datas(self, doubling, external, tmp_path):
        copy = shutil.copy(doubling, tmp_path / "doubling.onnx")
        assert network_slug(str(doubling)) == network_slug(str(copy))
        name, _, digits = network_slug(str(doubling)).rpartition("_")
        assert (name, len(digits)) == ("doubling", 8)
        before = network_slug(str(external))
        (external.parent / "weights" / "data.bin").write_bytes(bytes(64))
        assert network_slug(str(external)) != before

    @pytest.mark.parametrize(
        ("make", "batch", "said"),
        [
            (lambda p: None, 1, "a file that exists"),
            (lambda p: p.write_text("text"), 1, "cannot be read"),
            (lambda p: p.write_bytes(b""), 1, "cannot be read"),
            (lambda p: save(p, [helper.make_node("Frob", ["x"], ["y0"])]), 1, "cannot be read"),
            (lambda p: save(p, [helper.make_node("Relu", ["x"], ["y0"])], rows=2), 3, "2 rows"),
        ],
    )
    def test_wrong_files_say_what_would_be_right(self, tmp_path, make, batch, said):
        make(tmp_path / "x.onnx")
        with pytest.raises(RequestError, match=said):
            load_network(str(tmp_path / "x.onnx"), batch)

    def test_all_unsupported_operators_are_named_at_once(self, tmp_path):
        from hetfeat.workloads.relax import import_network

        nodes = [
            helper.make_node("Bernoulli", ["x"], ["a"]),
            helper.make_node("Frob", ["a"], ["y0"], domain="custom"),
        ]
        path = save(tmp_path / "x.onnx", nodes, domains=["custom"])
        with pytest.raises(RequestError, match="which TVM cannot import") as error:
            import_network(load_network(str(path)))
        assert "Bernoulli" in str(error.value)
        assert "Frob" in str(error.value)


def test_an_onnx_file_becomes_a_bundle_that_computes_it(tmp_path):
    from built import build

    from hetfeat.deploy.runtime import LoadedBundle

    module, inputs = tiny(1)
    path = tmp_path / "tiny.onnx"
    torch.onnx.export(module.eval(), inputs, str(path), dynamo=False)
    values = torch.randn(3, 3, 16, 16)
    with torch.inference_mode():
        expected = module(values).numpy()
    found = LoadedBundle(build(tmp_path / "bundle", str(path))).run([values.numpy()])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


class TestExportedProgram:
    @pytest.fixture
    def exported(self, tmp_path) -> Path:
        module, inputs = tiny(2)
        torch.export.save(torch.export.export(module.eval(), inputs), tmp_path / "tiny.pt2")
        return tmp_path / "tiny.pt2"

    def test_is_the_network_that_was_exported(self, exported):
        from hetfeat.workloads.relax import import_network

        network = load_network(str(exported), 2)
        assert network.inputs[0].shape == (2, 3, 16, 16)
        assert network.module(*network.inputs).shape == (2, 10)
        import_network(network)
        assert network.name == network_slug(str(exported))

    def test_of_another_batch_is_refused(self, exported):
        with pytest.raises(RequestError, match="2 rows"):
            load_network(str(exported), 4)

    def test_no_pickle_is_run(self, exported, tmp_path):
        """The example inputs of the archive are replaced by a pickle that leaves a file."""
        import zipfile

        class Trap:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "run"),)

        trap = io.BytesIO()
        torch.save(Trap(), trap)
        trapped = tmp_path / "trap.pt2"
        with zipfile.ZipFile(exported) as old, zipfile.ZipFile(trapped, "w") as new:
            replaced = [name for name in old.namelist() if "sample_inputs" in name]
            for name in old.namelist():
                new.writestr(name, trap.getvalue() if name in replaced else old.read(name))
        assert replaced
        with pytest.raises(DataError, match="without pickles"):
            load_network(str(trapped), 2)
        assert not (tmp_path / "run").exists()
        assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_torch_logs_no_traceback_of_a_broken_file(tmp_path, caplog):
    (tmp_path / "broken.pt2").write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError):
        load_network(str(tmp_path / "broken.pt2"), 1)
    assert not caplog.records


def test_all_unsupported_torch_operators_are_named_at_once():
    from hetfeat.workloads.relax import import_network

    with pytest.raises(RequestError) as error:
        import_network(load_network("nets:unknown_operators"))
    assert "linalg_eig" in str(error.value)
    assert "logcumsumexp" in str(error.value)
