"""What every model, search and importer has to pass, as classes of tests to inherit from.

`hetfeat.testing.models`, `.searches` and `.importers` need pytest; hetfeat itself does not.
"""
