"""Logs of one fault each: layers, addresses, nodes and times are drawn from the seed, other lines stand among them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edge0verify.runtime.sim_log import LogBook

LAYERS, BORDER = 48, 24
SPLIT = f"0-{BORDER - 1}@hip:0,{BORDER}-{LAYERS - 1}@hip:1"


@dataclass
class Scene:
    book: LogBook
    rng: random.Random
    stacks: list[str]

    @property
    def layer(self) -> int:
        return self.rng.randrange(BORDER + 1, LAYERS)

    def address(self) -> int:
        return self.rng.randrange(1 << 44, 1 << 46) & ~0xFFF

    def waiting(self, call: str = "hipStreamSynchronize") -> None:
        for n in range(1, self.rng.randrange(2, 5)):
            lwp = self.rng.randrange(1000, 99999)
            self.stacks += [
                f'Thread {n} (Thread 0x{self.address():x} (LWP {lwp}) "worker-{n}"):',
                f"#0  0x{self.address():016x} in ioctl () from /lib/x86_64-linux-gnu/libc.so.6",
                "#3  0x00007f12 in rocr::core::InterruptSignal::WaitRelaxed ()" if "hip" in call else "#3  0x00007f12 in poll ()",
                f"#9  0x00007f13 in {call} () from /opt/lib/libruntime.so",
                "",
            ]


def begin(seed: int, *, style: str | None = None) -> Scene:
    rng = random.Random(f"scene {seed}")
    book = LogBook(seed, style=style)
    book.started(LAYERS)
    book.say(f"pid {book.pid}, timeout 60 s, retries 0, no peer copies needed while one device is used", level="D")
    for _ in range(rng.randrange(2, 9)):
        book.say(
            rng.choice(
                (
                    f"prompt {rng.randrange(99)}: {rng.randrange(4000)} tokens, {rng.uniform(5, 90):.1f} t/s",
                    "graph for batch 8 captured",
                    "0 requests timed out",
                    "if a layer timed out the run would stop here",
                    "cache: no out of memory so far",
                )
            ),
            level="I",
        )
    noise(book, rng)
    return Scene(book, rng, [])


def noise(book: LogBook, rng: random.Random) -> None:
    """Lines about other cards, other processes and other times."""
    for _ in range(rng.randrange(1, 4)):
        other = f"0000:{rng.randrange(0xF1, 0xFF):02x}:00.0"
        book.dmesg(
            rng.choice(
                (
                    f"amdgpu {other}: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:3 pasid:32790)",
                    f"Out of memory: Killed process {book.pid + 7} (browser) total-vm:1048576kB",
                    "usb 1-2: new high-speed USB device number 7 using xhci_hcd",
                    f"amdgpu {other}: amdgpu: sq_intr: error, detail 0x00000000, type 2, sh 0, priv 1, wave_id 0, simd_id 0",
                    f"browser[{book.pid + 9}]: segfault at 10 ip 00007f sp 00007f error 4",
                )
            )
        )


def peer_read(s: Scene) -> None:
    s.book.where = f"layer {BORDER}"
    if s.rng.random() < 0.5:
        s.book.say("peer access is not enabled", level="W", device=1)
    s.book.page_fault(1, s.address(), call=s.rng.choice(("stream synchronise", "hipMemcpy", "launch")))


def lost_flag(s: Scene) -> None:
    s.book.timed_out(1, BORDER, seconds=s.rng.choice((5, 10, 30)))
    s.waiting(s.rng.choice(("hipStreamSynchronize", "cuStreamSynchronize", "hipEventSynchronize")))


def hang_without_error(s: Scene) -> None:
    s.waiting(s.rng.choice(("hipStreamSynchronize", "cudaStreamSynchronize")))


def evicted_pages(s: Scene) -> None:
    card = s.book.cards[1]
    for text in (
        "Evicting PASID 0x8003 queues",
        f"Failed to get user pages: -14 for pid {s.book.pid}",
        "Freeing queue vital buffer 0x7f, queue evicted",
    ):
        s.book.amdgpu(1, text)
    s.book.say(
        f"Memory access fault by GPU node-{card.node} (Agent handle: 0x{card.agent:x}) on address 0x{s.address():x}. "
        "Reason: Page not present or supervisor privilege."
    )


def tracing_tool(s: Scene) -> None:
    s.book.say(
        s.rng.choice(
            ("HSA_TOOLS_LIB=/opt/rocm/lib/librocprofiler64.so.1", "loaded libcupti.so.12", "LD_PRELOAD=/usr/lib/libmytrace.so")
        ),
        level="I",
    )
    s.book.timed_out(s.rng.randrange(2), s.layer)
    if s.rng.random() < 0.5:
        s.stacks += ["Thread 1 (LWP 77):", "#0  0x00007f in rocprofiler::queue::Queue::intercept ()", ""]


def host_memory(s: Scene) -> None:
    book = s.book
    book.dmesg(f"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task={book.program},pid={book.pid},uid=1000")
    book.dmesg(f"Out of memory: Killed process {book.pid} ({book.program}) total-vm:{s.rng.randrange(1 << 26)}kB, anon-rss:9kB")
    book.say(f"worker ended, exit code -9 at layer {s.layer}")


def device_memory(s: Scene) -> None:
    text = s.rng.choice(
        (
            "hipMalloc of 3.2 GiB failed: hipErrorOutOfMemory",
            "CUDA error: out of memory (cudaErrorMemoryAllocation)",
            "failed to allocate 412 MiB of VRAM for the cache",
        )
    )
    s.book.say(text, device=s.rng.randrange(2))


def capture(s: Scene) -> None:
    s.book.where = f"layer {s.layer}"
    s.book.say(
        s.rng.choice(
            (
                "hipMemcpy: hipErrorStreamCaptureUnsupported (900)",
                "cudaStreamSynchronize: operation not permitted when stream is capturing",
                "graph capture invalidated: cudaErrorStreamCaptureInvalidated",
            )
        ),
        device=s.rng.randrange(2),
    )


def symbol(s: Scene) -> None:
    s.book.say(
        s.rng.choice(
            (
                "./engine: symbol lookup error: libhipblaslt.so.0: undefined symbol: hipblasLtMatmulAlgoGetIds",
                "libamdhip64.so.6: cannot open shared object file: No such file or directory",
            )
        )
    )


def architecture(s: Scene) -> None:
    s.book.say(
        s.rng.choice(
            (
                "hipErrorNoBinaryForGpu: Unable to find code object for all current devices",
                "no kernel image is available for execution on the device",
            )
        )
    )


def fallback(s: Scene) -> None:
    s.book.say(
        s.rng.choice(
            ("latent kernel w11: shape 4096x2560 not supported, using mmvq instead", "falling back to the generic matmul")
        ),
        level="W",
    )


def hardware(s: Scene) -> None:
    s.book.xid(1, s.rng.choice((48, 79, 94)), "GPU memory or bus error")
    s.book.say("device lost: CUDA error 700 an illegal memory access was encountered", device=1)


# Scene -> (writes the logs, what must come first, also acceptable first where one line fits both)
FAULTS: dict[str, tuple[Callable[[Scene], None], str]] = {
    "peer read": (peer_read, "peer read"),
    "lost flag": (lost_flag, "lost flag"),
    "hang without an error": (hang_without_error, "lost flag"),
    "evicted user pages": (evicted_pages, "evicted user pages"),
    "tracing tool": (tracing_tool, "tracing tool"),
    "killed for memory": (host_memory, "out of memory"),
    "device memory gone": (device_memory, "out of memory"),
    "capture": (capture, "graph capture"),
    "symbol": (symbol, "unresolved symbol"),
    "architecture": (architecture, "no code for the card"),
    "fallback": (fallback, "silent fallback"),
    "hardware": (hardware, "broken device or link"),
}


def write(scene: Scene, folder: Path, *, encoding: str = "utf-8") -> tuple[Path, Path, Path]:
    engine, kernel = scene.book.write(folder, encoding=encoding)
    stacks = folder / "stacks.txt"
    stacks.write_text("\n".join(scene.stacks), encoding=encoding)
    return engine, kernel, stacks
