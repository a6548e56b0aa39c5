"""How many instructions a second one core executes, of those that sum products: a bound of kernels.

    python benchmarks/instructions.py

Each instruction goes from registers to registers, in a loop without loads or stores. A compiler of
C, `cc`, and a CPU with AVX2 are needed. Nothing else may run.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

PRODUCTS = "vpmaddwd %%ymm14, %%ymm15, %%ymm{sum}"
SUMS = "vpaddd %%ymm14, %%ymm{sum}, %%ymm{sum}"
BOTH = "vpmaddwd %%ymm14, %%ymm15, %%ymm13\\n vpaddd %%ymm13, %%ymm{sum}, %%ymm{sum}"
FUSED = "vfmadd231ps %%ymm14, %%ymm15, %%ymm{sum}"
LOOPS = {
    "vpmaddwd": (PRODUCTS, 0),
    "vpaddd": (SUMS, 0),
    "vpmaddwd, vpaddd": (BOTH, 32),
    "vfmadd231ps": (FUSED, 16),
}
"""By name what a loop repeats, and how many operations of arithmetic one of them is."""
REGISTERS, TIMES = 10, 2_000_000

PROGRAM = """
#include <stdio.h>
#include <time.h>
int main(void) {{
    double best = 1e9;
    for (int turn = 0; turn < 7; turn++) {{
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (long at = 0; at < {times}; at++)
            __asm__ volatile("{body}" ::: {clobbered});
        clock_gettime(CLOCK_MONOTONIC, &to);
        double took = to.tv_sec - from.tv_sec + 1e-9 * (to.tv_nsec - from.tv_nsec);
        if (took < best) best = took;
    }}
    printf("%.9f", best);
    return 0;
}}
"""


def rate(body: str) -> float:
    """Repeats a second of what a loop is of."""
    repeated = "\\n ".join(body.format(sum=number) for number in range(REGISTERS))
    clobbered = ", ".join(f'"ymm{number}"' for number in range(16))
    text = PROGRAM.format(times=TIMES, body=repeated, clobbered=clobbered)
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "loop.c", Path(folder) / "loop"
        source.write_text(text)
        subprocess.run(["cc", "-O2", "-mavx2", source, "-o", program], check=True)
        took_s = float(subprocess.run([program], capture_output=True, check=True).stdout)
    return REGISTERS * TIMES / took_s


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print("| instructions | 10^9 a second | GOP/s |\n| --- | --- | --- |")
    for name, (body, operations) in LOOPS.items():
        found = rate(body) / 1e9
        gops = f"{found * operations:.0f}" if operations else ""
        print(f"| {name} | {found:.2f} | {gops} |")


if __name__ == "__main__":
    main()
