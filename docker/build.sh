#!/bin/sh
# Build an image: docker/build.sh cpu|gpu [docker build options]
set -eu

variant="${1:-}"
[ "$#" -eq 0 ] || shift
folder="$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)"

case "$variant" in
  cpu)
    ;;
  gpu)
    # CUDA 13.0 is what torch 2.13.0 and vllm 0.32.0 are built with.
    set -- \
      --build-arg "BASE=${BASE:-nvidia/cuda:13.0.1-devel-ubuntu24.04}" \
      --build-arg TORCH_INDEX= \
      --build-arg CONSTRAINTS=docker/constraints-gpu.txt \
      --build-arg EXTRAS=rollout-vllm,deepspeed \
      --build-arg OMP_THREADS=8 \
      "$@"
    ;;
  *)
    echo "usage: $0 cpu|gpu [docker build options]" >&2
    exit 2
    ;;
esac

exec "${DOCKER:-docker}" build --file "$folder/docker/Dockerfile" --tag "infuser:$variant" "$@" "$folder"
