"""`edge0verify kernel`: one kernel alone, and the entry points latent_d_verify, latent_u_verify, latent_moe_verify."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

import click

from edge0verify.cli import options
from edge0verify.cli.progress import progress_bar

STAGES = ("D", "U", "A", "A1", "A2")
FORMATS = ("Q8_0", "Q4_0", "Q3_K", "IQ4_NL")


def _print(ctx: click.Context, _: click.Parameter, what: str | None) -> None:
    """Print a file that comes with the package, and end."""
    if what is None or ctx.resilient_parsing:
        return
    from edge0verify.study.kernel_library import SHIPPED, shipped

    click.echo(shipped(SHIPPED[what]), nl=False)
    ctx.exit()


@click.command()
@click.option("--stage", type=click.Choice(STAGES), required=True, help="D, U, A (both parts), A1 (gate, up) or A2 (down and sum).")
@click.option("--variant", required=True, metavar="VARIANT", help="The kernel, or with --library the contract that it keeps.")
@click.option("--format", "fmt", type=click.Choice(FORMATS), help="Weight format.  [default: the stage's own]")
@click.option("--shape", metavar="M,N,K[,E,S]", help="Weight rows, tokens, inner; experts, chosen.  [default: a sweep]")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Seed of the inputs; printed, repeats a run.  [default: fresh]")
@click.option("--isa", metavar="NAME", help="Instruction set of the built-in kernel, or phase.  [default: the fastest]")
@click.option("--library", type=click.Path(path_type=Path), help="Test a kernel of your own from this shared library.")
@click.option("--symbol", metavar="F[,F2]", help="Its symbol there; for stage A that of A1 and that of A2.")
@click.option("--writes", metavar="T[,T]", help="Tensors that it writes; the others are not judged.  [default: all of the stage]")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1), default=20.0, show_default=True, help="Seconds for one call.")
@click.option("--allow-refused", is_flag=True, help="Let it pass although the library refuses some shapes.")
@click.option("--print", type=click.Choice(("header", "example")), is_eager=True, expose_value=False, callback=_print,
              help="Print the C header, or a whole kernel for stage D, and end.")
@options.device_option("the built-in kernel")
@options.threads_option
@options.json_option
def command(
    stage, variant, fmt, shape, seed, isa, library, symbol, writes, timeout_s, allow_refused, device, threads, json_to,
) -> int:
    """Test one kernel alone: fresh inputs from a seed, adversarial ones, guards, its bound and the bias test.

    With --library a kernel of your own is called in a process of its own, by the C signatures of kernels/edge0_kernel.h, and
    judged by the contract of --variant. A crash or a hang there is a FAIL.

    \b
    Examples:
      edge0verify kernel --stage D --variant w11
      edge0verify kernel --stage A --variant mmq --shape 96,5,512 --seed 7
      edge0verify kernel --stage D --variant w11 --device cuda:0
      edge0verify kernel --stage D --variant mmvq --library ./k.so --symbol my_kernel --writes d-xl

    \b
    Exit code: 0 PASS, 1 FAIL, 2 input error, 3 INCONCLUSIVE (nothing was proven).
    """
    from contextlib import ExitStack

    from edge0verify.records.errors import InputError
    from edge0verify.report.kernel import kernel_text
    from edge0verify.study.kernel import Request, libraries_for, verify

    if (library is None) != (symbol is None):
        raise InputError("kernel: expected --library and --symbol together, found one of them")
    if library is None and writes is not None:
        raise InputError("kernel: --writes speaks of a library, found no --library")
    if device is not None and (library is not None or isa is not None):
        other = "--isa" if library is None else "--library"
        raise InputError(f"--device: expected without {other}, which is for this processor")
    with ExitStack() as stack:
        libraries = None
        if library is not None:
            chosen = None if writes is None else tuple(writes.split(","))
            libraries = {part: stack.enter_context(lib) for part, lib in libraries_for(stage, library, symbol, chosen, timeout_s)}
        request = Request(
            stage=stage,
            variant=variant,
            seed=secrets.randbits(32) if seed is None else seed,
            fmt=fmt,
            shape=_shape(shape, stage),
            isa=_isa(isa),
            threads=options.thread_count(threads),
            libraries=libraries,
            allow_refused=allow_refused,
            device=options.read_device(device),
        )
        with progress_bar() as progress:
            report = verify(request, progress)
    if json_to != "-":
        click.echo(kernel_text(report))
    if json_to is not None:
        options.write_text(json_to, options.with_command(report.verdict).dumps())
    return report.verdict.exit_code


def _shape(text: str | None, stage: str):
    """'M,N,K' or, for the expert stages, 'M,N,K,E,S'; InputError otherwise."""
    from edge0verify.records.errors import InputError
    from edge0verify.study.kernel_cases import Shape

    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    counts = (3, 5) if stage.startswith("A") else (3,)
    if len(numbers) not in counts or min(numbers) < 1:
        raise InputError(f"--shape {text}: expected M,N,K{'[,experts,chosen]' if 5 in counts else ''} of at least 1 each")
    if stage.startswith("A") and len(numbers) == 3:
        numbers += [4, 2]
    return Shape(*numbers)


def _isa(name: str | None) -> str | None:
    from edge0verify.records.errors import InputError
    from edge0verify.variants import _kernels

    if name is not None and name not in _kernels.usable_isas():
        raise InputError(f"--isa {name}: expected one of {', '.join(_kernels.usable_isas())}, those this processor runs")
    return name


def latent_d_verify() -> None:
    """Entry point: `edge0verify kernel --stage D ...`."""
    _entry("D")


def latent_u_verify() -> None:
    """Entry point: `edge0verify kernel --stage U ...`."""
    _entry("U")


def latent_moe_verify() -> None:
    """Entry point: `edge0verify kernel --stage A ...`."""
    _entry("A")


def _entry(stage: str) -> None:
    from edge0verify.cli.main import main

    main(["kernel", "--stage", stage, *sys.argv[1:]])
