"""`torch.compile(model, backend="hetfeat")`: graphs of torch's compiler, tuned and compiled.

What cannot be compiled, or not without changing what it computes, runs in torch, with one warning.
"""
