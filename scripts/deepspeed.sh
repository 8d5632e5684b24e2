#!/usr/bin/env bash
# Trains on this machine under the deepspeed launcher, one rank a GPU:
#   scripts/deepspeed.sh experiment=llama2_7b_64k attention=document
#   RANKS=2 scripts/deepspeed.sh ...         as many ranks as said, GPUs or not
set -euo pipefail
exec deepspeed ${RANKS:+--num_gpus "$RANKS"} --module anchorcontext.train "$@"
