#!/bin/sh
# A handler for `tidegate work`: the payload comes on standard input, what is printed is the result, what goes to
# standard error is the job's log, and the exit code says what became of it.
#
#     tidegate work --kind hello -- examples/shell/hello.sh
#     tidegate enqueue hello --data '{"name": "Ada"}'
set -eu

payload=$(cat)
name=$(printf '%s' "$payload" | sed -n 's/.*"name" *: *"\([^"]*\)".*/\1/p')

if [ -z "$name" ]; then
  echo "the payload has no name" >&2
  exit 65 # EX_DATAERR: trying again would not help, so the job becomes a dead letter
fi

echo "job $TIDEGATE_JOB_ID, attempt $TIDEGATE_ATTEMPT" >&2
printf '{"greeting": "hello %s"}\n' "$name"
