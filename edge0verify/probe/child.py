"""The process of one probe: reads an order from a file, prints a line of JSON before and after each operation.

What has been printed counts even when the process then hangs or dies, and the last line tells during which operation it did.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from edge0verify.probe.operations import run_operations
from edge0verify.probe.types import Machine, Order
from edge0verify.runtime.detect import DETECTORS
from edge0verify.runtime.protocol import Runtime


class NotHere(RuntimeError):
    """The runtime cannot be opened, and the reason."""


def open_machine(machine: Machine) -> Runtime:
    """The runtime that a probe asks for; NotHere with the reason."""
    if machine.runtime == "sim":
        from edge0verify.runtime.sim import SimRuntime
        from edge0verify.runtime.sim_knobs import parse_knobs

        return SimRuntime(machine.devices, knobs=parse_knobs(machine.knobs), seed=machine.seed, patience_s=machine.patience_s)
    found = DETECTORS[machine.runtime]()
    if found.runtime is None:
        raise NotHere(str(found.reason))
    return found.runtime


def say(**line: object) -> None:
    """A line of JSON, out at once."""
    print(json.dumps(line), flush=True)


def run_capture(order: dict) -> None:
    """One operation under graph capture: {capture, machine, device}."""
    from edge0verify.probe.capture import OPERATIONS, run_operation

    try:
        runtime = open_machine(Machine(**order["machine"]))
    except NotHere as error:
        say(absent=str(error))
        return
    operation = next(o for o in OPERATIONS if o.name == order["capture"])
    answer = run_operation(runtime, order["device"], operation, lambda: say(begin=operation.name))
    say(answer=asdict(answer))


def main() -> None:
    """Do what the order in the file of the first argument asks."""
    data = json.loads(Path(sys.argv[1]).read_text())
    if "capture" in data:
        run_capture(data)
        return
    order = Order.from_json(data)
    try:
        runtime = open_machine(order.machine)
    except NotHere as error:
        say(absent=str(error))
        return
    left = list(order.operations)
    say(begin=left[0])
    for row in run_operations(runtime, order.cell, order.operations, order.sizes, order.seed):
        say(row=row.to_json())
        left = left[left.index(row.operation) + 1 :]
        if left:
            say(begin=left[0])
    say(done=True)
    close = getattr(runtime, "close", None)
    if close is not None:
        close()


if __name__ == "__main__":
    main()
    # A driver whose device is lost may hang in its own clean-up.
    sys.stdout.flush()
    os._exit(0)
