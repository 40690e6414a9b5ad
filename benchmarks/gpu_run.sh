#!/bin/bash
# Everything that is to be seen on real GPUs, in one command: variants and engine against the CPU, captured dumps, speed, ISA.
#
#   benchmarks/gpu_run.sh OUT_FOLDER [RUNTIME]        RUNTIME: cuda (default), hip, or sim to try the script
#
# Exit code 0 whatever the answers are: each step's output and exit code is in OUT_FOLDER.  PARTS="compare bench" runs only those.
set -u
out=${1:?folder for the results}
runtime=${2:-cuda}
python=${PYTHON:-python3}
prompt=${PROMPT:-long}
mkdir -p "$out"
tool() { "$python" -m edge0verify.cli.main "$@"; }
step() {
  name=$1; shift
  start=$SECONDS
  timeout "${LIMIT:-150}" "$@" >"$out/$name.txt" 2>&1
  echo "exit $?" >>"$out/$name.txt"
  echo "== $name: $(tail -n 1 "$out/$name.txt"), $((SECONDS - start)) s: $(grep -E 'note|verdict|passed|failed|PASS|FAIL' "$out/$name.txt" | tail -n 2 | tr '\n' ' ')"
}
wants() { case " ${PARTS:-compare graph kernel bench bits drift} " in *" $1 "*) true;; *) false;; esac; }
export -f tool; export python
each() { step "$1" bash -c 'tool "$@"' tool "${@:2}"; }

each devices list devices
if wants compare; then
  for stage in D A U; do for variant in w11 mmq mmvq ref; do
    each "compare-$stage-$variant" compare --stage $stage --a $variant --b $variant --device-a cpu --device-b "$runtime:0" \
      --prompt "$prompt" --json "$out/compare-$stage-$variant.json"
  done; done
fi
if wants graph; then
  each plain run --prompt prose --set D=w11,A=w11,U=w11 --generate 16 --level full --device "$runtime:0" -o "$out/plain.h5" --overwrite
  each graph run --prompt prose --set D=w11,A=w11,U=w11 --generate 16 --level full --device "$runtime:0" --graph -o "$out/graph.h5" --overwrite
  each host run --prompt prose --set D=w11,A=w11,U=w11 --generate 16 --level full -o "$out/host.h5" --overwrite
  each graph-same compare "$out/plain.h5" "$out/graph.h5"
  each host-same compare "$out/host.h5" "$out/graph.h5"
  step captured "$python" -m pytest -q -p no:cacheprovider tests/runtime/test_captured.py
  rm -f "$out"/*.h5
fi
if wants kernel; then
  for stage in D A U; do each "kernel-$stage" kernel --stage $stage --variant w11 --device "$runtime:0" --seed 7; done
fi
if wants drift; then each drift-batch drift --over batch --stage A --variant w11 --device "$runtime:0"; fi
if wants bits; then
  step bits "$python" -m tests.runtime.device_bits "$runtime:0" --tuned --quiet --threads 8
fi
if wants bench; then each bench bench kernels --device "$runtime:0" ${BENCH:-} --json "$out/speed.json"; fi
exit 0
