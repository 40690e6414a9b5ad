#!/bin/bash
# Memory and capture probes on two GPUs, the answers of the memory table, and a layer split with its audit: one command.
#
#   benchmarks/probe_x2.sh OUT_FOLDER [DEVICES]        DEVICES: cuda (default), hip, or sim:2 to try the script
#
# Exit code 0 whatever the probes say: their answers are in OUT_FOLDER (memory.json, capture.json, audit.txt, split.txt, *.txt).
# Needs: the package built and importable, and for CUDA: pip install cuda-bindings nvidia-cuda-nvrtc
set -u
out=${1:?folder for the results}
devices=${2:-cuda}
runtime=${devices%%:*}
python=${PYTHON:-python3}
mkdir -p "$out"
tool() { "$python" -m edge0verify.cli.main "$@"; }
step() { name=$1; shift; echo "== $name"; "$@" >"$out/$name.txt" 2>&1; echo "exit $?" | tee -a "$out/$name.txt"; }

step devices tool list devices --json
step memory tool probe memory --devices "$devices" --timeout 60 --json "$out/memory.json"
step capture tool probe capture --devices "$devices" --json "$out/capture.json"
split="0-2@$runtime:0,3-5@$runtime:1"
step audit tool probe audit --split "$split" --json "$out/audit.json"
step audit-pair tool probe audit --split "$split" --plant pair
step audit-embedding tool probe audit --split "$split" --plant embedding
step one tool run --prompt prose --generate 16 -o "$out/one.h5" --overwrite
step split tool run --prompt prose --generate 16 --split "$split" -o "$out/split.h5" --overwrite
step same tool compare "$out/one.h5" "$out/split.h5"
step split-pair tool run --prompt prose --generate 16 --split "$split" --plant pair -o "$out/bad.h5" --overwrite
step split-embedding tool run --prompt prose --generate 16 --split "$split" --plant embedding -o "$out/bad.h5" --overwrite
rm -f "$out"/*.h5
tail -n 3 "$out"/memory.txt "$out"/capture.txt "$out"/same.txt
exit 0
