"""Which devices a model of a family is for: `cpu` and `gpu` are the unions of theirs."""

from collections.abc import Mapping

from hetfeat.devices.profile import FAMILIES, DeviceProfile
from hetfeat.errors import RequestError, not_one_of

UNIONS = tuple(dict.fromkeys(family.partition("-")[0] for family in FAMILIES))


def devices_of_family(profiles: Mapping[str, DeviceProfile], family: str) -> list[str]:
    """Names of the devices of a family or union.

    Raises:
        RequestError: No such family, or no device of it.
    """
    if family not in (*FAMILIES, *UNIONS):
        raise not_one_of("family", family, (*FAMILIES, *UNIONS), "choose one")
    found = [n for n, p in profiles.items() if family in (p.family, p.family.partition("-")[0])]
    if not found:
        present = sorted({p.family for p in profiles.values()})
        raise RequestError(
            f"family {family!r}, of which there are no records",
            f"a family of the records ({', '.join(present) or 'none'})",
            "choose another family or other records",
        )
    return found


def common_family(profiles: Mapping[str, DeviceProfile]) -> str:
    """The family of all devices, or the union that holds them.

    Raises:
        RequestError: CPUs and GPUs together.
    """
    families = sorted({profile.family for profile in profiles.values()})
    unions = sorted({family.partition("-")[0] for family in families})
    if len(unions) != 1:
        raise RequestError(
            f"records of {' and '.join(families) or 'no device'}",
            "devices of one family, or of one union (cpu, gpu)",
            "choose with --family",
        )
    return families[0] if len(families) == 1 else unions[0]
