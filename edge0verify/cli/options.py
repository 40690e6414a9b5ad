"""Options that several commands share, declared once, and how their values are read."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from pathlib import Path

import click
import numpy as np
from click.core import ParameterSource

from edge0verify.records import status as statuses
from edge0verify.records.errors import InputError

STAGES = ("D", "A", "U")
MOST_ROWS = 1 << 31
"""Above any position, where a prompt's length is not known yet."""


def model_options(command):
    """-m/--model and --projection."""
    command = click.option(
        "--projection",
        type=click.Path(path_type=Path),
        help="GGUF with latent_down and latent_up to lay over the model's own; q4_0 names the embedded one.",
    )(command)
    return click.option(
        "-m", "--model", type=click.Path(path_type=Path), help="GGUF file or safetensors folder.  [default: the embedded model]"
    )(command)


def prompt_options(default: str = "long"):
    """--prompt, -f/--file and --rows."""

    def add(command):
        command = click.option("--rows", metavar="A:B", help="Judge only the token positions A to B-1.")(command)
        command = click.option(
            "-f", "--file", "prompt_file", type=click.Path(path_type=Path), help="Take the prompt from a text file."
        )(command)
        return click.option(
            "--prompt", default=default, show_default=True, help="An embedded prompt: long, prose, questions, code, list."
        )(command)

    return add


def threads_option(command):
    return click.option(
        "--threads", type=click.IntRange(1, 1024), help="Threads; the results do not depend on it.  [default: all cores]"
    )(command)


def json_option(command):
    """--json; a file that cannot be written is refused before the work."""
    return click.option(
        "--json",
        "json_to",
        metavar="FILE|-",
        callback=lambda ctx, parameter, value: value if value in (None, "-") else check_target(value),
        help="Write the verdict as JSON to a file, or to standard output instead of the table.",
    )(command)


def device_option(what: str = "the kernels"):
    """--device."""
    return click.option(
        "--device", metavar="NAME", help=f"Where {what} run: cpu, cuda:0, hip:0, sim:0 or gfx11emu.  [default: cpu]"
    )


def read_device(device: str | None) -> str:
    """A device's name, 'cpu' where none is given; InputError for a name that no runtime has."""
    from edge0verify.study.on_device import CPU, check_name

    return check_name(CPU if device is None else device)


@contextmanager
def open_device(device: str | None, threads: int, graph: bool = False):
    """The kernels of --device, closed at the end; what the device refuses or loses ends the program with the reason.

    graph: those that replay a layer's stages as a captured graph.
    """
    from edge0verify.study.on_device import Refused, close_kernels, open_kernels, settled
    from edge0verify.variants.captured import captured_on

    kernels = None
    try:
        name = read_device(device)
        kernels = captured_on(name) if graph else open_kernels(name, threads=threads)
        yield kernels
    except Refused as error:
        status, reason = settled(error)
        click.echo(f"{status}: {reason}", err=True)
        raise click.exceptions.Exit(statuses.exit_code(status)) from error
    finally:
        close_kernels(kernels)


def split_options(command):
    """--split, and for simulated devices --knobs and --seed."""
    command = click.option("--plant", "mistake", hidden=True, help="For tests: pair or embedding.")(command)
    command = click.option("--seed", type=int, default=0, hidden=True, help="Of simulated devices.")(command)
    command = click.option("--knobs", hidden=True, help="Of simulated devices, as in probe memory.")(command)
    return click.option(
        "--split", metavar="LAYERS@DEVICE,...", help="Run layers on devices: 0-2@sim:0,3-5@sim:1 or 0-5@cuda:0."
    )(command)


@contextmanager
def open_split(model, text, knobs, seed, mistake, variants, threads, route=None):
    """The engine of --split, closed at the end; None where there is no split.

    A device that fails during the block ends the program with what is known of it and exit 1, an absent one with exit 3.
    """
    if text is None:
        if knobs or mistake:
            raise InputError("--knobs and --plant: expected only with --split")
        yield None
        return
    from edge0verify.engine.split import SplitFault, parse_split
    from edge0verify.engine.split_engine import SplitEngine, open_runtime
    from edge0verify.records import status as statuses
    from edge0verify.runtime.detect import Absent
    from edge0verify.runtime.protocol import DeviceError
    from edge0verify.study.on_device import settled

    split = parse_split(text, model.config.layers)
    runtime = None
    try:
        runtime = open_runtime(split, knobs=knobs, seed=seed)
        yield SplitEngine(model, split, runtime, mistake=mistake, variants=variants or None, threads=threads, route=route)
    except Absent as error:
        click.echo(f"INCONCLUSIVE: {error}", err=True)
        raise click.exceptions.Exit(3) from error
    except SplitFault as error:
        click.echo(f"FAIL: {error}", err=True)
        raise click.exceptions.Exit(1) from error
    except DeviceError as error:
        status, reason = settled(error)
        click.echo(f"{status}: {reason}", err=True)
        raise click.exceptions.Exit(statuses.exit_code(status)) from error
    finally:
        if hasattr(runtime, "close"):
            runtime.close()


def thread_count(threads: int | None) -> int:
    """The number asked for, or the processors this process may use."""
    return threads or len(os.sched_getaffinity(0))


def open_model(path: Path | None, projection: Path | None):
    """The model of -m and --projection."""
    from edge0verify.model import load_model

    return load_model(path, projection)


def read_rows(text: str | None, tokens: int) -> slice:
    """'A:B' as a slice of token positions that is not empty; InputError otherwise."""
    if text is None:
        return slice(0, tokens)
    try:
        first, last = text.split(":")
        rows = slice(*slice(int(first) if first else 0, int(last) if last else tokens).indices(tokens)[:2])
    except ValueError:
        raise InputError(f"--rows {text}: expected A:B with whole numbers") from None
    if rows.start >= rows.stop:
        raise InputError(f"--rows {text}: expected rows of a prompt of {tokens} tokens, found none")
    return rows


def read_layers(text: str | None, layers: int) -> tuple[int, ...] | None:
    """'3' or '0-2' or '0,4' as layer numbers below `layers`; None means all. InputError otherwise."""
    if text is None:
        return None
    found: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            found.extend(range(int(first), int(last or first) + 1))
    except ValueError:
        raise InputError(f"--layer {text}: expected numbers such as 3, 0-2 or 0,4") from None
    wrong = [n for n in found if not 0 <= n < layers]
    if wrong or not found:
        raise InputError(f"--layer {text}: expected layers 0 to {layers - 1}, found {wrong[0] if wrong else 'none'}")
    return tuple(sorted(set(found)))


def read_prompt(model, name: str, file: Path | None) -> tuple[str, np.ndarray]:
    """(name, int32 tokens with <bos> first) of an embedded prompt or a file; InputError where the command line names both."""
    from edge0verify import model as models

    ctx = click.get_current_context(silent=True)
    if file is not None and ctx is not None and ctx.get_parameter_source("prompt") is ParameterSource.COMMANDLINE:
        raise InputError(f"--prompt {name} and --file {file}: expected one of them, found both")
    text = models.prompt_file(file) if file is not None else models.prompt(name)
    return (str(file) if file is not None else name), models.encode(text)


def read_variants(chosen: str | None, flags: str | None) -> tuple[dict[str, str | None], dict[str, str]]:
    """(flags, variants per stage) from 'D=w11,A=mmq' or from engine flags; both empty where neither is given.

    InputError where both are given, for a word that is no STAGE=VARIANT, an unknown or repeated stage, an unknown variant or flag.
    """
    from edge0verify.study.replay import PARTS
    from edge0verify.variants.flags import read_flags, variants_of
    from edge0verify.variants.registry import STAGES as ALL
    from edge0verify.variants.registry import find

    if flags is not None:
        if chosen is not None:
            raise InputError("--set and --flags: expected one of them, found both")
        found = read_flags(flags)
        return found, variants_of(found)
    variants: dict[str, str] = {}
    for word in (chosen or "").split(",") if chosen else ():
        stage, equals, name = word.strip().partition("=")
        if not equals or (stage not in PARTS and stage not in ALL):
            raise InputError(f"--set {chosen}: expected STAGE=VARIANT with a stage D, A or U, found {word!r}")
        for part in PARTS.get(stage, (stage,)):
            if part in variants:
                raise InputError(f"--set {chosen}: expected stage {part} once, found it twice")
            variants[part] = find(part, name).name
    return {}, variants


def read_route(flags, model):
    """The route flags among `flags`; a line on standard error for one that cannot act. InputError for a value without meaning."""
    from edge0verify.engine.route_flags import RouteFlags

    route = RouteFlags.of(flags, model.config)
    if route.idle():
        click.echo(f"edge0verify: {route.idle()}", err=True)
    return route


def is_whole(flags_a: str | None, flags_b: str | None, stage: str | None) -> bool:
    """Whether two sets of flags ask for runs of the whole model: no stage is named, or routes are flagged, which no replay of a
    stage on identical inputs could show."""
    from edge0verify.variants.flags import by_design, read_flags

    if flags_a is None or flags_b is None:
        return False
    return stage is None or bool(by_design(read_flags(flags_a)) or by_design(read_flags(flags_b)))


def read_side(side: str, variant: str | None, flags: str | None, stage: str | None) -> dict[str, str]:
    """Variants per part (D, A1, A2, U) that one side of a comparison is given by name (for `stage`) or by flags; {} by neither.

    InputError where both are given, for a name without a stage, an unknown name or flag.
    """
    from edge0verify.study.replay import PARTS
    from edge0verify.variants.flags import read_flags, variants_of
    from edge0verify.variants.registry import find

    if variant is not None and flags is not None:
        raise InputError(f"--{side} and --flags-{side}: expected one of them, found both")
    if variant is not None:
        if stage not in PARTS:
            raise InputError(f"--{side} {variant}: expected --stage D, A or U with it, found {stage or 'none'}")
        return {part: find(part, variant).name for part in PARTS[stage]}
    if flags is None:
        return {}
    chosen = variants_of(read_flags(flags))
    return {part: chosen[part] for part in PARTS.get(stage, chosen)}


def read_dump_layers(text: str | None) -> tuple[int | str, ...] | None:
    """As `read_layers`, 'mtp' included; which layers there are only the dumps say."""
    if text is None:
        return None
    words = text.split(",")
    numbers = ",".join(word for word in words if word != "mtp")
    found = read_layers(numbers, 1000) if numbers else ()
    return (*found, "mtp") if "mtp" in words else found


def with_command(verdict):
    """The verdict with the command line that asked for it, so that a report can say how to repeat it."""
    import shlex
    from dataclasses import replace

    words = click.get_current_context().obj
    return replace(verdict, environment={**verdict.environment, "command": shlex.join(words)}) if words else verdict


def make_parent(path: Path) -> None:
    """Create the folder that a file is to be written to; InputError where that cannot be done.

    What was created goes again where the command ends without having put a file there.
    """
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: expected a folder that can be written, found: {error.strerror}") from None
    ctx = click.get_current_context(silent=True)
    if ctx is not None and made:
        ctx.call_on_close(lambda: _remove_empty(made))


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:                                       # the deepest first
        with suppress(OSError):
            folder.rmdir()


def check_target(path: str) -> str:
    """`path` where a file can be written to it; InputError otherwise, before any work is done for it."""
    folder = os.path.dirname(os.path.realpath(path))
    wrong = None
    if os.path.isdir(path) or path.endswith(os.sep) or not path:
        wrong = errno.EISDIR if path else errno.ENOENT
    elif not os.path.isdir(folder):
        wrong = errno.ENOTDIR if os.path.exists(folder) else errno.ENOENT
    elif not os.access(path if _is_special(path) else folder, os.W_OK):
        wrong = errno.EACCES
    if wrong is not None:
        raise InputError(f"{path or repr(path)}: expected a file that can be written, found: {os.strerror(wrong)}")
    return path


def write_text(path: str, text: str) -> None:
    """Write a whole file or nothing: a temporary file beside it, renamed. '-' is standard output.

    A device or a pipe (/dev/null, >(...)) is written into, a link is followed: neither is ever replaced.
    """
    if path == "-":
        click.echo(text, nl=False)
        return
    check_target(path)
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        if _is_special(path):
            Path(path).write_text(text)
            return
        partial.write_text(text)
        os.replace(partial, target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InputError(f"{path}: expected a file that can be written, found: {error.strerror}") from None
    except BaseException:                                        # an interrupt leaves nothing either
        partial.unlink(missing_ok=True)
        raise


def _is_special(path: str) -> bool:
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
