"""Networks, and the tensor computations they consist of."""
