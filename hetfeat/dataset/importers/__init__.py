"""Foreign records into the store: one importer a format, one framework that counts."""
