import base64
import gzip
import json

import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import te

from hetfeat.dataset import serialised
from hetfeat.dataset.store import WORKLOADS, RecordStore
from hetfeat.workloads.relax import load_workload, save_workload

GRAPH = json.dumps({"root_index": 1, "nodes": [{"type_key": "ir.IRModule"}], "name": "ä"})


def as_tvm_writes(text: str) -> str:
    data = text.encode()
    return base64.b64encode(len(data).to_bytes(8, "little") + data).decode()


class TestText:
    def test_a_module_is_its_json(self):
        assert serialised.to_text(as_tvm_writes(GRAPH)) == GRAPH

    def test_it_is_what_tvm_writes(self):
        module = save_workload(tvm.IRModule({"main": te.create_prim_func([te.placeholder((4,))])}))
        text = serialised.to_text(module)
        assert "nodes" in json.loads(text)
        assert "\n" not in text
        kept = load_workload(serialised.of_text(text))
        tvm.ir.assert_structural_equal(kept, load_workload(module))

    def test_line_breaks_and_indents_are_left_out_but_of_strings(self):
        values = {"root_index": 1, "nodes": ["a\n  b", "c  d"]}
        text = serialised.to_text(as_tvm_writes(json.dumps(values, indent=2)))
        assert text == '{"root_index": 1,"nodes": ["a\\n  b","c  d"]}'
        assert serialised.to_text(serialised.of_text(text)) == text

    @given(st.one_of(st.text(), st.binary().map(lambda data: base64.b64encode(data).decode())))
    def test_whatever_is_no_module_comes_back(self, module):
        if not module.startswith("{"):
            assert serialised.of_text(serialised.to_text(module)) == module

    def test_another_length_is_no_module(self):
        odd = base64.b64encode((5).to_bytes(8, "little") + GRAPH.encode()).decode()
        assert serialised.to_text(odd) == odd


class TestStore:
    def test_a_store_keeps_json(self, tmp_path):
        module = as_tvm_writes(GRAPH)
        store = RecordStore.create(tmp_path / "store")
        store.add_workloads({"t": module})
        (line,) = gzip.decompress((store.path / WORKLOADS).read_bytes()).splitlines()
        assert json.loads(line) == ["t", GRAPH]
        assert store.workloads() == {"t": module}

    def test_an_older_store_has_base64(self, tmp_path):
        module = as_tvm_writes(GRAPH)
        store = RecordStore.create(tmp_path / "store")
        lines = json.dumps(["t", module]) + "\n"
        (store.path / WORKLOADS).write_bytes(gzip.compress(lines.encode()))
        assert store.workloads() == {"t": module}
        store.add_workloads({"u": "x"})
        assert store.workloads() == {"t": module, "u": "x"}
