"""A first result without measuring: the packaged model picks the programs of ResNet-18."""

from pathlib import Path

from hetfeat.api.devices import Device, as_profile
from hetfeat.api.models import packaged_source
from hetfeat.deploy.pipeline import deploy
from hetfeat.deploy.report import DeployReport
from hetfeat.deploy.request import DeployRequest, Imported, discard
from hetfeat.devices.host import need_cross_compiler
from hetfeat.errors import RequestError
from hetfeat.measure.base import need_measurable
from hetfeat.report.first_result import write_page
from hetfeat.workloads.networks import load_network, network_slug
from hetfeat.workloads.seeded_resnet18 import write_resnet18

NETWORK, BUNDLE, PAGE = "resnet18.onnx", "bundle", "index.html"


def show_first_result(folder: Path, device: Device = "local") -> DeployReport:
    """Compiles a ResNet-18 with drawn weights by the packaged model's picks, and times it.

    Nothing is measured before: each task gets the program that the model ranks first. The outputs
    are compared with ONNX Runtime's, and the latency with that of the engines installed.

    Args:
        folder: Folder for the network, the bundle and the page; it is made. A bundle that is there
            is replaced.
        device: Profile, or what `deploy_network` takes; default this machine.

    Returns:
        The deployment's report.

    Raises:
        RequestError: A device that cannot be measured, or one of a family without a packaged model;
            or something else lies in the folder.
        WorkFailed: The compiled network is wrong.
    """
    profile = as_profile(device)
    need_measurable(profile)
    need_cross_compiler(profile.name, profile.target)
    name, source = packaged_source(profile.family)
    if source is None:
        raise RequestError(
            f"a demo on '{profile.name}', of family {profile.family}",
            "a device of a family with a packaged cost model",
            "tune a network there with `hetfeat deploy`",
        )
    path = folder / NETWORK
    if folder.exists() and any(folder.iterdir()) and not path.is_file():
        raise RequestError(
            f"'{folder}'", "a new or empty folder, or a demo's", "choose another --out"
        )
    discard(folder / BUNDLE)
    folder.mkdir(parents=True, exist_ok=True)
    write_resnet18(path)
    request = DeployRequest(
        network=str(path),
        slug=network_slug(str(path)),
        batches=(1,),
        device=profile.name,
        model=name,
        effort="quick",
        trials=0,
        seed=0,
    )
    imported = Imported.of(1, load_network(str(path)))
    report = deploy(request, [imported], profile, source, folder / BUNDLE)
    write_page(folder / PAGE, report, path)
    return report
