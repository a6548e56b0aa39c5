"""A child that ends as LLVM does when memory runs out while it compiles."""

import os
import resource
import sys

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\n")
sys.stderr.flush()
os.abort()
