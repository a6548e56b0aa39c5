"""Functions of one value in terms that LLVM vectorises."""
