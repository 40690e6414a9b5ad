"""`edge0verify probe`: what devices do to each other's memory, which pointers a split hands out, what a graph capture accepts."""

from __future__ import annotations

from pathlib import Path

import click

from edge0verify.cli import options
from edge0verify.cli.progress import progress_bar
from edge0verify.records.errors import InputError


@click.group("probe")
def command() -> None:
    """Probe devices: memory between two of them, pointers of a split, operations under graph capture.

    Every probe runs in a process of its own with a time limit, since what it looks for may take a process or a device with it.

    \b
    Example:
      edge0verify probe memory --devices sim:2 --max-size 64K
    """


def _size(text: str | None) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    word = (text or "64M").strip().upper().removesuffix("IB").removesuffix("B")
    digits, unit = (word[:-1], units[word[-1]]) if word[-1:] in units else (word, 1)
    if not digits.isdigit() or not 4 <= int(digits) * unit <= 1 << 32:
        raise InputError(f"--max-size {text}: expected bytes such as 4, 64K or 64M, from 4 to 4G")
    return int(digits) * unit


def _machine(devices: str | None, knobs: str | None, seed: int):
    """(Machine, Survey) of --devices; the first of cuda and hip with a device where it is not given."""
    from dataclasses import replace

    from edge0verify.probe.memory import read_devices
    from edge0verify.probe.types import Machine
    from edge0verify.runtime.sim_knobs import parse_knobs
    from edge0verify.runtime.survey import Survey, survey

    machine = read_devices(devices)
    if machine is None:
        asked = [survey(name) for name in ("cuda", "hip")]
        found = next((s for s in asked if s.devices), None)
        if found is None:
            why = "; ".join(f"{s.runtime}: {s.reason}" for s in asked)
            return Machine(runtime="cuda", devices=0), Survey(
                runtime="cuda", reason=f"{why}; --devices sim:2 probes simulated ones"
            )
        machine = Machine(runtime=found.runtime, devices=len(found.devices))
        return machine, found
    if machine.runtime == "sim":
        from edge0verify.runtime.sim import SimRuntime

        machine = replace(machine, knobs=knobs or "", seed=seed)
        runtime = SimRuntime(machine.devices, knobs=parse_knobs(knobs), seed=seed)
        return machine, Survey(runtime="sim", devices=runtime.devices())
    if knobs:
        raise InputError("--knobs: only simulated devices have them (--devices sim:N)")
    found = survey(machine.runtime)
    count = machine.devices or len(found.devices)
    return replace(machine, devices=count), replace(found, devices=found.devices[:count])


device_options = [
    click.option("--devices", metavar="cuda|hip|sim:N", help="Which devices.  [default: those of CUDA or HIP here]"),
    click.option("--knobs", metavar="NAME=VALUE,...", help="How simulated devices misbehave, e.g. memset=early."),
    click.option(
        "--seed", type=click.IntRange(0, 2**31), default=0, show_default=True, help="Patterns, offsets, simulated addresses."
    ),
    click.option(
        "--timeout", "timeout_s", type=click.FloatRange(0.1, 3600), default=60.0, show_default=True, help="Seconds an operation."
    ),
    options.json_option,
]


def with_devices(function):
    for option in reversed(device_options):
        function = option(function)
    return function


@command.command("memory")
@with_devices
@click.option("--max-size", metavar="BYTES", help="Largest transfer.  [default: 64M]")
@click.option(
    "--memory",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="device, mapped host, managed, pageable; may be repeated.  [default: all]",
)
def memory(devices, knobs, seed, timeout_s, json_to, max_size, kinds) -> int:
    """Let each device use the memory of each other one, and check every byte.

    Kernel reads and writes, copies, memset from the other device, atomics and event waits, with patterns from 4 B to 64 MiB at odd
    offsets, beside a control arm that goes through the host. A refusal that the rules demand (a kernel without peer access)
    FAILs its row and is no fault. Bandwidth is shown beside what the link can carry and never decides.

    \b
    Examples:
      edge0verify probe memory --devices sim:2 --max-size 64K
      edge0verify probe memory --devices sim:2 --knobs memset=early --max-size 64K

    \b
    Exit code: 0 PASS, 1 FAIL, 2 input error, 3 INCONCLUSIVE (no pair of devices, or an operation that could not be tried).
    """
    from edge0verify.probe.memory import Request, absent, probe
    from edge0verify.probe.patterns import SIZES
    from edge0verify.probe.text import memory_text
    from edge0verify.probe.types import KINDS

    largest = _size(max_size)
    wrong = [kind for kind in kinds if kind not in KINDS]
    if wrong:
        raise InputError(f"--memory {wrong[0]}: expected one of {', '.join(KINDS)}")
    machine, found = _machine(devices, knobs, seed)
    if not found.devices:
        report = absent(_why(found))
        return _show(report, memory_text(report), json_to)
    sizes = tuple(n for n in SIZES if n < largest) + (largest,)
    request = Request(machine=machine, sizes=sizes, kinds=kinds or KINDS, seed=seed, timeout_s=timeout_s)
    with progress_bar() as progress:
        report = probe(request, found.devices, progress)
    return _show(report, memory_text(report), json_to)


@command.command("capture")
@with_devices
def capture(devices, knobs, seed, timeout_s, json_to) -> int:
    """Put each operation into a graph capture and replay the graph on other bytes.

    What a capture forbids must be refused. An operation that is accepted and left out of the graph breaks silently: FAIL.

    \b
    Examples:
      edge0verify probe capture --devices sim:1
      edge0verify probe capture --devices sim:1 --knobs capture=lax --seed 3
    """
    from edge0verify.probe.capture import capture_text, conclude, probe_capture

    machine, found = _machine(devices, knobs, seed)
    if not found.devices:
        report = conclude(f"{machine.runtime}:0", (), _why(found))
        return _show(report, capture_text(report), json_to)
    with progress_bar() as progress:
        report = probe_capture(machine, 0, timeout_s=timeout_s, progress=progress)
    return _show(report, capture_text(report), json_to)


@command.command("audit")
@click.option("--split", required=True, metavar="LAYERS@DEVICE,...", help="As 0-2@sim:0,3-5@sim:1.")
@click.option("-m", "--model", type=click.Path(path_type=Path), help="GGUF file.  [default: the embedded model]")
@click.option("--seed", type=int, default=0, hidden=True, help="Of simulated devices.")
@click.option("--plant", "mistake", hidden=True, help="For tests: pair or embedding.")
@options.json_option
def audit(split, model, seed, mistake, json_to) -> int:
    """Check every pointer that a stage of a split is given against the device that runs it.

    Nothing is launched: the engine puts its weights in place, and the driver is asked who owns each address.

    \b
    Example:
      edge0verify probe audit --split 0-2@sim:0,3-5@sim:1
    """
    from edge0verify.engine.split import parse_split
    from edge0verify.model import load_model
    from edge0verify.probe.audit import absent, audit_split, audit_text
    from edge0verify.runtime.detect import Absent
    from edge0verify.runtime.protocol import DeviceError

    loaded = load_model(model)
    parsed = parse_split(split, loaded.config.layers)
    try:
        report = audit_split(loaded, parsed, mistake=mistake, seed=seed)
    except (Absent, DeviceError) as error:
        report = absent(parsed, str(error))
    return _show(report, audit_text(report), json_to)


def _show(report, text: str, json_to: str | None) -> int:
    if json_to != "-":
        click.echo(text)
    if json_to is not None:
        options.write_text(json_to, report.dumps())
    return report.exit_code


def _why(found) -> str:
    return found.reason or f"{found.runtime}: no device"
