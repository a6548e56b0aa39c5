"""How numbers of half precision are stored, and which CPUs multiply them."""

BITS = "uint16"
"""Type of the integers that are the bits of bfloat16."""
STORED_IN = {"float16": "float16", "bfloat16": BITS}
"""Type of what is stored, by the name of a type of half precision."""
MULTIPLIED_BY = ("amx-bf16", "avx512bf16")
"""LLVM's features of CPUs that multiply bfloat16, the faster ones first."""
