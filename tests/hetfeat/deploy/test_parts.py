"""Kernels compiled in parts, by several threads."""

import numpy as np
import pytest

from hetfeat.workloads.networks import load_network

pytestmark = pytest.mark.tvm


def test_parts_are_the_same_bytes_by_any_number_of_threads(device, tmp_path, monkeypatch):
    import tvm
    from tvm import relax

    from hetfeat.deploy import parts
    from hetfeat.devices.target import linker
    from hetfeat.workloads.relax import as_target, import_network, lower

    network, target = load_network("nets:tiny"), as_target(device.target)
    lowered = lower(import_network(network), target)
    libraries = []
    for cores in (1, 4):
        monkeypatch.setattr(parts, "usable_cores", lambda cores=cores: cores)
        made = parts.compile_in_parts(lowered, target, parts=3)
        assert [part.kind for part in made.mod.imports] == ["static_library"] * 3
        libraries.append(tmp_path / str(cores) / "lib.so")
        libraries[-1].parent.mkdir()
        made.export_library(str(libraries[-1]), fcompile=linker(device.target))
    assert libraries[0].read_bytes() == libraries[1].read_bytes()
    whole = tvm.compile(lowered, target)
    found, expected = (
        relax.VirtualMachine(of, tvm.cpu())["main"](tvm.runtime.tensor(network.inputs[0].numpy()))
        for of in (tvm.runtime.load_module(str(libraries[0])), whole)
    )
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_a_part_that_does_not_compile_fails_the_whole(device, monkeypatch):
    from hetfeat.deploy import parts
    from hetfeat.workloads.relax import as_target, import_network, lower

    target = as_target(device.target)
    lowered = lower(import_network(load_network("nets:tiny")), target)

    def refuse(kernels, names, target, path):
        raise ValueError(names[0])

    monkeypatch.setattr(parts, "_compiled", refuse)
    with pytest.raises(ValueError):
        parts.compile_in_parts(lowered, target)
