"""The command `edge0verify`: finds the command's file, turns what happens into the exit codes of the design.

0 PASS, 1 FAIL, 2 usage or input error, 3 INCONCLUSIVE, 70 internal error, 130 interrupt. An exception never exits with 1.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import keyword
import os
import sys
import warnings

import click

from edge0verify import __version__
from edge0verify.records.errors import InputError

FULL = (errno.ENOSPC, errno.EDQUOT)

COMMANDS = {
    "compare": "compare two variants, or two dumps, layer by layer",
    "bisect": "the first layer, stage, row and block that does not conform",
    "drift": "how far variants, runs, threads, batch widths and contexts move the numbers",
    "run": "run the engine over a prompt and write a dump",
    "show": "what a dump holds: manifest, tensors, statistics",
    "import": "bring another engine's tensors into a dump",
    "eval": "put the embedded questions to the model",
    "doctor": "what is built and found here, and what each absence means",
    "kernel": "test one kernel alone, built in or from a shared library",
    "layout": "decoded weights beside the originals: the mistake that fits",
    "selftest": "try the suite on planted faults and legitimate changes",
    "prove": "check the claims that kernels rest on, over all codes",
    "list": "list variants, devices, prompts",
    "probe": "memory between devices, pointers of a split, operations under graph capture",
    "triage": "from the logs of a multi-device fault to its likeliest causes",
    "golden": "keep accepted runs, hold what runs now against them",
    "nightly": "a matrix of goldens and variant pairs, with a history",
    "report": "a verdict or a history of nightlies as one HTML file",
    "gate": "keep verdicts per commit and machine, ask whether a head is good",
    "isa": "registers, spills and hot loops of device code, read without a GPU",
    "bench": "benchmarks: A against B in rotated rounds",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for, so that `--help` starts at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        # `import` is a word of the language, so its file bears an underscore.
        file = name.replace("-", "_") + ("_" if keyword.iskeyword(name) else "")
        return importlib.import_module(f"edge0verify.cli.{file}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]):
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = _nearest(args[0], COMMANDS)
            raise click.UsageError(f"no command {args[0]!r}" + (f"; did you mean {near!r}?" if near else ""), ctx) from error


def _nearest(word: str, known) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="edge0verify")
def cli() -> None:
    """Is that rounding, or a fault, and did the variant run at all?

    \b
    Example:
      edge0verify compare --stage D --a mmq --b w11
    """


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with the design's code."""
    sys.exit(run(argv))


def run(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code. Nothing but a SystemExit of a child passes through."""
    try:
        # Not `cli.main`, which turns a closed pipe into exit code 1: here that is a verdict.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)      # of numpy, about NaN and Inf: the verdict says where they are
            words = sys.argv[1:] if argv is None else list(argv)
            # The words stay with the context: a verdict keeps the command that gave it.
            with cli.make_context("edge0verify", list(words), obj=("edge0verify", *words)) as context:
                result = cli.invoke(context)
        return int(result) if isinstance(result, int) else 0
    except InputError as error:
        return _end(2, str(error))
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _end(130, "interrupted")
    except click.exceptions.NoArgsIsHelpError as error:
        commands = ", ".join(error.ctx.command.list_commands(error.ctx))
        return _end(2, f"expected a command, one of {commands}; {error.ctx.command_path} --help says more")
    except click.ClickException as error:
        return _end(2, " ".join(error.format_message().split()))
    except BrokenPipeError:
        _drop(sys.stdout)                       # the reader went away (`| head`): nobody is left to read a verdict
        return 70
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            _drop(sys.stdout)
            return _end(2, f"cannot write the output: {error.strerror}")
        return _internal(error)


def _end(code: int, text: str) -> int:
    """Say the one line; where nobody can read it, the exit code is all that is left."""
    try:
        click.echo(f"edge0verify: {text}", err=True)
    except OSError:
        _drop(sys.stderr)
    return code


def _internal(error: Exception) -> int:
    import traceback

    if os.environ.get("EDGE0VERIFY_TRACEBACK"):
        traceback.print_exc()
    where = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(f"{type(error).__name__}: {error}".split())
    place = f"{os.path.basename(where.filename)}:{where.lineno}"
    return _end(70, f"internal error: {said} ({place}; EDGE0VERIFY_TRACEBACK=1 shows more)")


def _drop(stream) -> None:
    """What the stream still holds goes nowhere, so that Python does not complain at exit and change the exit code."""
    with contextlib.suppress(AttributeError, OSError, ValueError):       # no file behind it
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
