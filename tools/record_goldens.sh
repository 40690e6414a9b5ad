#!/usr/bin/env bash
# Records the project's own goldens: every stage and variant, the four prompts whole in their first tokens and sketched in full, the
# long prompt sketched. Each is a candidate until it is accepted; with a REASON they are accepted too.
#
#   tools/record_goldens.sh [STORE] [REASON]                on the processor
#   DEVICE=cuda:0 PREFIX=h200- tools/record_goldens.sh ...  on a GPU: the sketches alone, under names of their own
set -euo pipefail
store=${1:-golden} reason=${2:-} device=${DEVICE:-cpu} prefix=${PREFIX:-}
edge0verify=${EDGE0VERIFY:-edge0verify}
mixed=D=w11,A=mmq,U=w11 # what the engine runs when no flag is set

keep() { # NAME, then what record takes
    local name=$prefix$1
    shift
    $edge0verify golden record "$name" --store "$store" --device "$device" "$@" | sed -n 1p
    if [ -n "$reason" ]; then $edge0verify golden accept "$name" --store "$store" --reason "$reason" >/dev/null; fi
}

if [ "$device" = cpu ]; then
    keep first-prose-ref --prompt prose --tokens 5 --level full --set D=ref,A=ref,U=ref
    keep first-questions-mmvq --prompt questions --tokens 5 --level full
    keep first-code-mmq --prompt code --tokens 5 --level full --set D=mmq,A=mmq,U=mmq
    keep first-list-w11 --prompt list --tokens 5 --level full --set D=w11,A=w11,U=w11
    keep long-mmvq --prompt long --level sketch
fi
for prompt in prose questions code list; do
    for variant in ref mmvq mmq w11; do
        keep "$prompt-$variant" --prompt "$prompt" --level sketch --set "D=$variant,A=$variant,U=$variant"
    done
done
keep long-mixed --prompt long --level sketch --set "$mixed"
