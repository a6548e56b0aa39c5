"""The outputs of small quantised networks, to the bit, as other CPUs computed them."""

import json

import digested
import pytest

pytestmark = [pytest.mark.tvm]

COMMITTED = json.loads(digested.COMMITTED.read_text())


@pytest.mark.parametrize("name", digested.NETWORKS)
def test_numpy_agrees_with_other_machines(name):
    model = digested.NETWORKS[name]()
    assert digested.digest(model, digested.by_numpy(model)) == COMMITTED[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", digested.NETWORKS)
def test_each_instruction_set_here_agrees_with_other_machines(name):
    model = digested.NETWORKS[name]()
    found = {
        cpu: digested.digest(model, digested.by_cpu(model, cpu)) for cpu in digested.cpus_here()
    }
    assert found == dict.fromkeys(found, COMMITTED[name])
