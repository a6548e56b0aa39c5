"""Small quantised networks, and digests of their outputs: each CPU is held to the same file.

    PYTHONPATH=tests python -m digested [--inputs 10000]

prints the digests of numpy, and of what is compiled for each instruction set that this CPU has. The
committed ones are of 20 inputs; a new network's line is added by hand, from two kinds of CPU.
"""

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
import quantised
from integer_networks import AVX2, AVX512, SSE, VNNI, compiled, imported

COMMITTED = Path(__file__).with_name("integer_digests.json")
INPUTS = 20


def plain():
    """A convolution, one of each channel, a residual sum, a pooling and a product."""
    return quantised.small_network(seed=11)


def image():
    """Three channels, strides, a maximum, zero points of weights, int8 between layers."""
    net = quantised.Qdq((1, 3, 15, 15), seed=12)
    x = net.qdq("x", scale=0.04, zero=121)
    weights, _ = net.filters((16, 3, 7, 7))
    value = net.node("Relu", net.node("Conv", x, weights, pads=[3] * 4, strides=[2, 2]))
    value = net.node("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    value = net.qdq(value, "int8", scale=0.9, zero=-100)
    weights, _ = net.filters((32, 16, 3, 3), dtype="uint8", zero=True)
    return net.model(net.qdq(net.node("Conv", value, weights, pads=[1] * 4), scale=9.0, zero=99))


def gated():
    """Hard-swish, and channels weighed by a sigmoid of their averages."""
    net = quantised.Qdq((1, 4, 8, 8), seed=13)
    x = net.qdq("x", scale=0.03, zero=128)
    weights, _ = net.filters((16, 4, 1, 1))
    value = net.qdq(net.node("HardSwish", net.node("Conv", x, weights)), scale=0.2, zero=15)
    weights, _ = net.filters((16, 1, 5, 5))
    value = net.qdq(net.node("Conv", value, weights, group=16, pads=[2] * 4), scale=0.6, zero=130)
    pooled = net.qdq(net.node("GlobalAveragePool", value), scale=0.3, zero=120)
    weights, _ = net.filters((16, 16, 1, 1))
    share = net.qdq(net.node("Sigmoid", net.node("Conv", pooled, weights)), scale=0.004, zero=0)
    return net.model(net.qdq(net.node("Mul", value, share), scale=0.6, zero=130))


def attention():
    """Scores of rows with each other, their softmax, a norm and a gelu."""
    net = quantised.Qdq((2, 12, 32), seed=14, opset=20)
    x = net.qdq("x", scale=0.05, zero=128)
    parts = [
        net.qdq(net.node("MatMul", x, net.filters((32, 32), axis=1)[0]), scale=0.8, zero=127)
        for _ in range(3)
    ]
    turned = net.node("Transpose", parts[1], perm=[0, 2, 1])
    scores = net.node("Mul", net.node("MatMul", parts[0], turned), net.constant(np.float32(1e-3)))
    shares = net.qdq(net.node("Softmax", scores, axis=-1), scale=1 / 255, zero=0)
    summed = net.node("Add", x, net.qdq(net.node("MatMul", shares, parts[2]), scale=0.5, zero=128))
    vectors = [net.constant(net.rng.normal(size=32).astype(np.float32)) for _ in range(2)]
    normal = net.qdq(net.node("LayerNormalization", summed, *vectors), scale=0.03, zero=128)
    made = net.node("Gelu", net.node("MatMul", normal, net.filters((32, 48), axis=1)[0]))
    return net.model(net.qdq(made, scale=0.9, zero=5))


def dynamic():
    """A product whose input is quantised as it comes."""
    net = quantised.Qdq((6, 24), seed=15)
    values = net.rng.integers(-128, 128, (24, 16)).astype(np.int8)
    outputs = [net.node("DynamicQuantizeLinear", "x")]
    net.nodes[-1].output.extend(["s", "z"])
    sums = net.node("MatMulInteger", outputs[0], net.constant(values), "z")
    scale = net.node("Mul", "s", net.constant(np.float32(0.01)))
    return net.model(net.node("Mul", net.node("Cast", sums, to=1), scale))


def joined():
    """Windows averaged, channels joined, a clip."""
    net = quantised.Qdq((1, 8, 9, 9), seed=16)
    x = net.qdq("x", scale=0.03, zero=100)
    weights, _ = net.filters((8, 8, 3, 3))
    limits = [net.constant(np.float32(limit)) for limit in (0, 6)]
    left = net.node("Clip", net.node("Conv", x, weights, pads=[1] * 4), *limits)
    window = {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}
    right = net.node("AveragePool", x, **window)
    parts = [net.qdq(part, scale=0.03, zero=20) for part in (left, right)]
    value = net.qdq(net.node("Concat", *parts, axis=1), scale=0.03, zero=20)
    weights, _ = net.filters((24, 16, 1, 1))
    return net.model(net.qdq(net.node("Conv", value, weights, strides=[2, 2]), scale=0.7, zero=60))


NETWORKS = {make.__name__: make for make in (plain, image, gated, attention, dynamic, joined)}


def inputs_of(model, count):
    """Numbers between -4 and 4 that no library draws."""
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    size = int(np.prod(shape))
    for number in range(count):
        at = np.arange(number * size, (number + 1) * size, dtype=np.uint64)
        mixed = (at * np.uint64(2654435761) ^ (at >> np.uint64(3))) % np.uint64(2**20)
        yield (mixed.astype(np.float32) / np.float32(2**17) - 4).reshape(shape)


def digest(model, run, count=INPUTS):
    """SHA-256 of the outputs of a network for that many inputs."""
    return of_outputs(output for value in inputs_of(model, count) for output in run(value))


def of_outputs(outputs):
    total = hashlib.sha256()
    for output in outputs:
        total.update(np.ascontiguousarray(output).astype(output.dtype.newbyteorder("<")))
    return total.hexdigest()


def by_numpy(model):
    """What computes a network in exact integers."""
    from hetfeat.workloads.integer_reference import run_integers

    module = imported(model)
    return lambda value: run_integers(module, [value])


def by_cpu(model, cpu):
    """A network compiled for a CPU whose instructions this one has."""
    import tvm
    from tvm import relax

    main = relax.VirtualMachine(compiled(imported(model), cpu), tvm.cpu())["main"]

    def run(value):
        found = main(tvm.runtime.tensor(value))
        return [found.numpy()] if hasattr(found, "numpy") else [one.numpy() for one in found]

    return run


def cpus_here():
    """This CPU, and those of other instruction sets whose programs it runs."""
    import tvm
    from tvm.target import codegen

    from hetfeat.devices import host

    own = host.llvm_cpu()
    native = tvm.target.Target({"kind": "llvm", "mcpu": own})
    needs = {SSE: "sse4.2", AVX2: "avx2", AVX512: "avx512bw", VNNI: "avx512vnni"}
    return [own, *(cpu for cpu, name in needs.items() if codegen.target_has_features(name, native))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=INPUTS)
    count = parser.parse_args().inputs
    for name, make in NETWORKS.items():
        model = make()
        found = {"numpy": digest(model, by_numpy(model), count)}
        found |= {cpu: digest(model, by_cpu(model, cpu), count) for cpu in cpus_here()}
        print(json.dumps({name: found}), flush=True)
