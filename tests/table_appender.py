"""A collector that may be killed at any moment: measures into a table, and says what is safe."""

import random
import time
from pathlib import Path

from hetfeat.dataset.tables.shared_store import SharedStore, share, store_at
from hetfeat.dataset.tables.uri import as_place
from hetfeat.testing import stores


def programs_of(device: str, count: int) -> list:
    return stores.programs(stores.task(1), count, seed=int(device.removeprefix("d")))


def collect(uri: str, device: str, count: int, batch: int, safe: Path) -> None:
    """Measures what its store lacks of `count` programs; `safe` gets the key of each after it."""
    profile = stores.profile(device)
    store = store_at(as_place(uri), [device])
    assert isinstance(store, SharedStore)
    with store.writing():
        store.add_device(profile)
        held = {key for keys in store.program_keys(device) for key in keys}
        todo = [program for program in programs_of(device, count) if program.key not in held]
        for number, program in enumerate(todo, 1):
            store.append([stores.measured(program, profile)])
            with safe.open("a") as file:
                file.write(f"{program.key}\n")
            time.sleep(random.uniform(0, 0.01))
            if number % batch == 0:
                store.compact()
        store.compact()
    share(store)
