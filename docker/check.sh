#!/bin/sh
# Check the image files: docker/check.sh [FOLDER with hadolint, shellcheck and a Python that has compose-spec]
set -eu

cd -- "$(CDPATH='' dirname -- "$0")/.."
tools="${1:+$1/}"
export POSTGRES_PASSWORD="${POSTGRES_PASSWORD:-check}" PREFECT_API_AUTH_STRING="${PREFECT_API_AUTH_STRING:-check}"

"${tools}hadolint" docker/Dockerfile
"${tools}shellcheck" docker/*.sh
for file in docker/compose*.yaml; do
  "${tools}python" -c 'import sys, compose_spec as c; c.PyCompose.from_yaml(open(sys.argv[1]).read()).validate()' "$file"
done

set -- --file docker/compose.yaml
for overlay in "" docker/compose.gpu.yaml docker/compose.sandbox.yaml; do
  if docker compose version > /dev/null 2>&1; then
    docker compose "$@" ${overlay:+--file "$overlay"} config --quiet
  else
    echo "no docker compose here: ${overlay:-docker/compose.yaml} was checked against the specification alone" >&2
  fi
done

if "${tools}python" -c 'import sky' 2> /dev/null; then
  "${tools}python" - docker/skypilot.yaml << 'END'
import sys, yaml
from sky.utils import common_utils, schemas

task = yaml.safe_load(open(sys.argv[1]))
common_utils.validate_schema(task, schemas.get_task_schema(), "task: ")
common_utils.validate_schema(task["resources"], schemas.get_resources_schema(), "resources: ")
END
else
  echo "no skypilot here: docker/skypilot.yaml was not checked against its schema" >&2
fi
echo "image files are in order"
