"""How engines, runtimes and kernels word what goes wrong: one rule per wording, and the words that turn a wording round.

A rule is (kind, words, pattern).  Its pattern is only tried on lines that hold one of its words in lower case, which keeps logs of
many megabytes quick; so everything that the pattern matches must hold one.  Named groups of a pattern: layer, address, node, pci,
pid, name, code.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Rule(NamedTuple):
    """kind: what a line that fits says."""

    kind: str
    words: tuple[str, ...]
    pattern: re.Pattern[str]


def _rules(*rows: tuple[str, str, str]) -> tuple[Rule, ...]:
    return tuple(Rule(kind, tuple(words.split("|")), re.compile(pattern, re.IGNORECASE)) for kind, words, pattern in rows)


_ENDED = r"(?:\b(?:exit(?:ed)?(?:[ -]?(?:with|code|status))*|return(?:ed)?(?: code)?|rc)[ =:(]*)"
_LATE = r"(?:timed[ -]?out|watchdog (?:fired|expired))"
_LAYER = r"layer[ =:#]*(?P<layer>\d+|mtp)"
_API = r"(?:cuda|hip|rocm|hsa|driver|runtime)"
_BY = r"(?:by|with|from|on|got|received|caught)"
_CRASH = "SIG(?:SEGV|ABRT|BUS)"
_CAPTURE = "unsupported|invalidated|implicit|merge|unmatched|unjoined|isolation|wrong ?thread"
# Not behind a count or a measure, and not before one: 'max error 700 ulp' is no error 700.
_NO_MEASURE = r"(?! *(?:ulps?|units|rows|bytes|of|in)\b| *[/%]|\.\d)"
_ERROR = r"(?<!max )(?<!abs )(?<!mean )(?<!rel )(?<!relative )\berror[ :=(]{{1,3}}{}\b" + _NO_MEASURE
ENGINE = _rules(
    ("time-out", "out|fired|expired", rf"(?:{_LATE}|time-?out (?:at|in|on|while|waiting)).{{0,40}}?{_LAYER}"),
    ("time-out", "out|fired|expired", rf"{_LAYER}\b.{{0,60}}{_LATE}"),
    ("time-out", "out|fired|expired", rf"\b{_LATE}\b"),
    ("time-out", "exceeded", r"\bwait(?:ed|ing)?\b.{0,60}\bexceeded\b|\b(?:deadline|time limit) exceeded\b"),
    ("time-out", "timeout|time-out", r"\b(?:collective|operation|fence|stream|event) time-?out\b(?![ =:(]*\d)"),
    ("time-out", "no progress|hung|stuck", r"\bno progress (?:for|in|since|after) \d|\b(?:appears|seems|is|was) (?:hung|stuck)\b"),
    ("illegal access", "illegal", r"illegal (?:memory access|address)|(?:hip|cuda)ErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS"),
    ("illegal access", "700", _ERROR.format("700") + rf"|\b{_API}\w*\b.{{0,30}}\b(?:error|returned|status|code)[ :=(]{{1,3}}700\b"),
    ("illegal access", "memory_fault|inaccessible", r"HSA_STATUS_ERROR_MEMORY_FAULT|attempted to access an inaccessible address"),
    (
        "fault by node",
        "memory access fault",
        r"memory access fault by GPU node-?(?P<node>\d+).{0,60}?(?:on|at) address (?P<address>0x[0-9a-f]+|\(nil\))",
    ),
    ("bad address", "aperture", r"MEMORY_APERTURE_VIOLATION|beyond the largest legal address"),
    ("bad address", "misaligned", r"\bmisaligned address|ErrorMisalignedAddress|CUDA_ERROR_MISALIGNED_ADDRESS"),
    ("bad address", "address", r"ErrorInvalidAddressSpace|not supported on global/shared address space"),
    ("launch failure", "launch", r"unspecified launch failure|ErrorLaunchFailure|CUDA_ERROR_LAUNCH_FAILED"),
    ("launch failure", "719", _ERROR.format("719")),
    ("launch failure", "exception", r"HSA_STATUS_ERROR_EXCEPTION\b|resulted in a hardware exception"),
    ("device hang", "gpu", r"HW Exception by GPU node-?(?P<node>\d+)|\bGPU (?:hang|hung)\b"),
    ("device error", "ecc", r"uncorrectable ECC error|ErrorECC\w*|CUDA_ERROR_ECC_UNCORRECTABLE"),
    ("device error", "gpu", r"\bGPU is lost\b|GPU has fallen off the bus"),
    ("out of memory kill", "oom", r"\bOOM[- ]?killed\b|\boom[-_]kill\b.{0,30}event|killed by the (?:cgroup )?OOM killer"),
    ("out of memory kill", "out-of-memory", r"killed by the (?:cgroup )?out-of-memory handler"),
    ("told to end", "time limit|sigterm|143|signal 15", rf"due to time limit|{_BY} (?:signal 15\b|SIGTERM)|{_ENDED}(?:-15|143)\b"),
    ("killed", "killed", r"^\s*(?:\S*sh: line \d+: +)?(?:\[\d+\][+-]? +)?(?:\d+ +)?Killed(?:\s*$|\s{4,})"),
    ("killed", "-9|137", rf"{_ENDED}(?:-9|137)\b"),
    ("killed", "sigkill", rf"(?:{_BY}|signal|status)[ =:(]+SIGKILL\b|\bSIGKILL\)? (?:was )?received"),
    ("killed", "signal", rf"\b{_BY} signal[ =:#]*9\b|\bsignal[ =:#]*9\b(?=\s*(?:$|[(,.;)]|received))"),
    ("crashed", "-11|139|-6|134", rf"{_ENDED}(?:-11|139|-6|134)\b"),
    ("crashed", "sigsegv|sigabrt|sigbus", rf"(?:{_BY}|signal|status)[ =:(]+{_CRASH}\b|\b{_CRASH}\)? (?:was )?received"),
    ("crashed", "segmentation|dumped", r"segmentation fault|\(core dumped\)"),
    ("capture error", "captur", r"not permitted when stream is capturing|capture (?:was )?(?:invalidated|failed)"),
    ("capture error", "captur", rf"stream ?capture ?(?:{_CAPTURE})|capturing.{{0,40}}(?:failed|error)"),
    ("capture error", "captur", r"previous error during capture|depend on a capturing|on uncaptured work"),
    ("capture error", "90", _ERROR.format("90[0-8]")),
    ("unresolved symbol", "symbol", r"undefined symbol|symbol lookup error|unresolved (?:external )?symbol|named symbol not found"),
    ("unresolved symbol", "shared object|glibc", r"cannot open shared object|version .?GLIBC\w*_[\d.]+.? not found"),
    ("unresolved symbol", "driver", r"driver version is insufficient|ErrorInsufficientDriver"),
    ("no code for the card", "image|function", r"no kernel image is available|invalid device function|ErrorInvalidDeviceFunction"),
    ("no code for the card", "binary", r"ErrorNoBinaryForGpu|NO_BINARY_FOR_GPU"),
    ("no code for the card", "no binary|no code object", r"\bno (?:binary|code object) for (?:gpu|gfx\w+|this)"),
    ("no code for the card", "gpu arch", r"cannot read .{1,200} for GPU arch"),
    ("no code for the card", "toolchain|kernel image", r"compiled with an unsupported toolchain|device kernel image is invalid"),
    ("no code for the card", "illegal", r"HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION|illegal (?:shader )?instruction"),
    ("fallback", "back", r"fall(?:ing|s|en)? ?back (?:to|on)"),
    ("fallback", "instead", r"not (?:supported|available).{0,40}using .{1,40} instead|using .{1,40}kernel instead"),
    ("fallback", "usable|overrid", r"no usable (?:GPU|device) found|overriding (?:\w+ )?backend"),
    ("fallback", "tuning", r"tuning (?:table|file).{0,40}(?:refused|ignored|rejected|mismatch|not found)"),
    ("device memory gone", "memory", r"(?:hip|cuda)Error(?:OutOfMemory|MemoryAllocation)|CUDA_ERROR_OUT_OF_MEMORY"),
    ("device memory gone", "resources", r"ERROR_OUT_OF_RESOURCES"),
    ("device memory gone", "out of memory", r"\b(?:CUDA|HIP|ROCm|GPU) out of memory"),
    (
        "device memory gone",
        "fail",
        r"(?:hip|cuda)(?:Host)?Malloc\w* (?:of .{1,30})?failed|failed to allocate .{1,40}(?:device|vram|gpu|buffer)",
    ),
    ("host memory gone", "memory|bad_alloc", r"std::bad_alloc|cannot allocate memory|\bMemoryError\b"),
    ("memory gone", "memory|alloc", r"\bout of memory\b|\bfailed to allocate\b|allocation (?:of .{1,30})?failed"),
    ("peer off", "peer", r"peer (?:access|copies|to peer).{0,30}(?:off|disabled|unsupported)|no peer access"),
    ("peer off", "peer", r"peer (?:access|copies|to peer).{0,30}not (?:enabled|supported|possible|available)"),
    ("peer on", "peer", r"peer access.{0,40}(?:\bon\b|enabled)|enabled peer access"),
    ("tracing tool", "rocp|roct|omnitrace", r"rocprof\w*|roctracer|librocprofiler\S*|omnitrace|ROCTX"),
    ("tracing tool", "hsa_tools", r"HSA_TOOLS_LIB\s*=\s*\S+"),
    ("tracing tool", "cupti|nsys|nsight|sanitizer", r"libcupti|CUPTI|nsys profile|Nsight|compute-sanitizer"),
    ("tracing tool", "preload", r"LD_PRELOAD\s*=\s*\S*(?:trac|prof)\S*"),
    ("finished", "exit|return|rc|all done|generated", rf"{_ENDED}0\b|all done|all tokens generated|generated \d+ tokens"),
)  # fmt: skip
ABOUT = {
    "fallback": re.compile(
        r"kernel|mat-?mul|gem[mv]|mmv?q|w11|blas|backend|\b[cg]pu|cuda|hip|rocm|device|attention|heuristic|quant|wmma|mfma|tuning|shape",
        re.IGNORECASE,
    )
}
"""Kinds that only count on a line about these: a tokenizer falls back as well."""
# What no rule explains and still is no healthy line: upper case where lower case is everyday speech.
FAILURE = re.compile(
    r"\b(?:CUDA|HIP|ROCm|HSA|cuBLAS|hipBLASLt|rocBLAS|NCCL|RCCL)\w* (?:\w+ ){0,2}error\b"
    r"|\bHSA_STATUS_ERROR\w*|\b(?:hip|cuda)Error(?!NotReady|Name|String)[A-Z]\w+|\bCUDA_ERROR_[A-Z_]+"
    r"|\b(?:ERROR|FATAL|CRITICAL|PANIC)\b|\[(?:error|fatal|critical)\]|^E\d{4} \d\d:|^F\d{4} \d\d:"
    r"|^\S+[ T][\d:.,]+(?:Z|[+-][\d:]+)? [EF] |^Traceback \(|\bpanicked at\b|\bterminate called\b|^Aborted\b|\b[A-Z]\w+Error: "
    r"|[Aa]ssertion .*failed|\bGGML_ASSERT\("
)
FAILURE_WORDS = (
    "error", "fatal", "critical", "panic", "traceback", "terminate called", "abort", "assert", " e ", " f ", "e0", "e1", "f0", "f1",
)  # fmt: skip
"""'e0' and its like: the levels and months of a glog line."""
_PCI_OF = r"amdgpu (?P<pci>[0-9a-f:.]+): .*"
_MAYBE_PCI = r"^(?:.*?amdgpu (?P<pci>[0-9a-f:.]+): )?.*"
_XID = r"NVRM: Xid \(PCI:(?P<pci>[0-9a-f:.]+)\): "
_USERPTR = r"failed (?:-?\d+ )?to (?:get|restore|validate) (?:user ?pages|userptr)|userptr .{0,40}(?:invalid|evict|fail)"
KERNEL = _rules(
    ("page fault", "page fault (", rf"{_PCI_OF}page fault \((?:.*for process (?P<name>\S*) pid (?P<pid>\d+))?"),
    ("fault address", "amdgpu", rf"{_PCI_OF}in page starting at address (?P<address>0x[0-9a-f]+)"),
    ("fault process", "amdgpu", rf"{_PCI_OF}(?:in |for )?process (?P<name>\S*) pid (?P<pid>\d+)"),
    ("sq_intr", "sq_intr", rf"{_MAYBE_PCI}\bsq_intr: error"),
    ("page fault", "xid", rf"{_XID}31,(?:.*pid=(?P<pid>\d+))?(?:.*faulted @ (?P<address>0x[0-9a-f_]+))?"),
    ("kernel exception", "xid", rf"{_XID}(?P<code>13)\b(?:.*pid=(?P<pid>\d+))?"),
    ("ring time-out", "xid", rf"{_XID}(?P<code>8|109)\b(?:.*pid=(?P<pid>\d+))?"),
    # 43 and 45 follow from any fault of a program, so they tell nothing of the card.
    ("device error", "xid", rf"{_XID}(?P<code>48|6[1-4]|74|79|9[245]|119|120|140)\b(?:.*pid=(?P<pid>\d+))?"),
    ("ring time-out", "time", rf"{_MAYBE_PCI}(?:ring \S+ timeout|amdgpu_job_timedout|fence wait loop timeout expired)"),
    ("ring time-out", "fence", rf"{_MAYBE_PCI}(?:fence fallback timer expired|waiting for fences timed out)"),
    ("ring time-out", "mes ", rf"{_MAYBE_PCI}MES failed to respond"),
    ("device reset", "gpu", rf"{_MAYBE_PCI}GPU (?:reset begin|recovery|has fallen off the bus)"),
    ("pages evicted", "evict|user", rf"{_MAYBE_PCI}(?:evicting (?:PASID|process|queues)|queues? evicted|{_USERPTR})"),
    ("pages evicted", "pages|svm_range", rf"{_MAYBE_PCI}(?:get_user_pages.{{0,30}}fail|svm_range.{{0,40}}(?:evict|fail))"),
    ("out of memory kill", "kill", r"\bkill(?:ed)? process (?P<pid>\d+),? (?:UID \d+, )?\((?P<name>[^)]*)\)"),
    ("out of memory kill", "oom-kill", r"oom-kill:.*task=(?P<name>[^,]+),pid=(?P<pid>\d+)"),
    ("memory pressure", "oom", r"invoked oom-killer"),
    ("link error", "pcie", r"pcieport .*AER: (?!Correct)|PCIe Bus Error: severity=(?!Correct)"),
    ("link error", "badtlp|link is down", r"\bBadTLP\b|link is down"),
    ("blocked DMA", "amd-vi", r"AMD-Vi: Event logged \[IO_PAGE_FAULT(?:.*device=(?P<pci>[0-9a-f:.]+))?"),
    ("blocked DMA", "dmar", r"DMAR: .*fault|DMAR: .*Request device \[(?P<pci>[0-9a-f:.]+)\]"),
    ("crashed", "segfault", r"(?P<name>\S+)\[(?P<pid>\d+)\]: segfault at"),
    ("tracing tool", "debug", r"amdgpu.*debug trap|kfd.*debugger attached"),
)  # fmt: skip
KERNEL_LINE = re.compile(
    r"\bkernel: |\bNVRM: |\bamdgpu(?: [0-9a-f:.]+)?: |^(?:<\d+>)?\[ *\d+\.\d+\] |\boom-kill(?:er)?:|\bpcieport |\bAMD-Vi: |\bDMAR: "
)
"""A line of the kernel in an engine's log, where both were written to one file."""
KERNEL_LINE_WORDS = ("kernel: ", "nvrm: ", "amdgpu", "[", "oom-kill", "pcieport", "amd-vi", "dmar")
WAITING = (
    r"(?:Stream|Device|Event|Context|Ctx)Synchronize|stream_synchron|\bsynchronize\b|hsa_signal_wait|awaitCompletion"
    r"|WaitRelaxed|WaitAcquire|BusyWaitSignal|InterruptSignal|hsaKmtWaitOn"
)
TRACING = r"rocprofiler|roctracer|cupti|omnitrace"
# Words before a match that turn its meaning round or make it a condition.
NEGATED = re.compile(
    r"(?:\b(?:no|not|never|without|would|may|might|could|avoids?|avoiding|prevents?|against|detects?)\s+(?:\w+\s+)?"
    r"|\b(?:if|unless|whether|when|in case of|checks? for|handlers? for)\s+(?:\w+\s+){0,3}"
    r"|(?:^|[,;:]\s+|\b(?:[DIWN]|INFO|DEBUG)\s+)on\s+(?:an?\s+)?"
    r"|(?:^|[,(;\]]\s*|:\s+|\bwith\s+|\band\s+|\b(?:[DIWEN]|INFO|DEBUG|WARN\w*)\s+)(?:0|zero)\s+(?:\w+\s+){0,2})$",
    re.IGNORECASE,
)
# What follows a match and says that it is a setting or a part of the program.
SETTING = re.compile(
    r"[\w.-]*\s*(?:[=:]\s*(?:0|off|none|no|not|disabled|false)\b|(?:handlers?|handling|check(?:s|ing)?|detection|tests?|guards?|policy)\b)",
    re.IGNORECASE,
)
BEFORE = 80
"""Characters before a match that are searched for words that turn it round."""
