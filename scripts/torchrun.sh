#!/usr/bin/env bash
# Trains on this machine under torchrun, one rank a GPU:
#   scripts/torchrun.sh experiment=llama2_7b_64k attention=document
#   RANKS=2 scripts/torchrun.sh ...          as many ranks as said, GPUs or not
# Threads of a rank are cores / ranks, or OMP_NUM_THREADS where it is set; torchrun alone would make it 1.
# A signal reaches the ranks, which have SHUTDOWN_SECONDS to end before they are killed.
set -euo pipefail
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT="${SHUTDOWN_SECONDS:-600}" # torchrun's --shutdown-timeout, which torch 2.11 lacks
if [[ -z "${OMP_NUM_THREADS:-}" ]]; then
  ranks="${RANKS:-$({ nvidia-smi --list-gpus 2>/dev/null || true; } | wc -l)}"
  cores=$(nproc)
  export OMP_NUM_THREADS=$((ranks > 0 && cores > ranks ? cores / ranks : 1))
fi
exec torchrun \
  --standalone \
  --nproc-per-node "${RANKS:-gpu}" \
  --signals-to-handle SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2 \
  -m anchorcontext.train "$@"
