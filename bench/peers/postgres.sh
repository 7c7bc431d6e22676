# shellcheck shell=bash disable=SC2154,SC2034 # variables and functions of `run`
# The part of `run --postgres`. Sourced by it; start_postgres and its companions are those of scripts/lib.sh.

backlog=ready=1000000,delayed=1000000,completed=1000000,parked=10000x100

# A Node of at least 22.18, which graphile-worker asks for: the system's, or the one from npm.
node_22() {
  local candidate
  for candidate in node "$here/node_modules/.bin/node"; do
    if "$candidate" -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || (a === 22 && b >= 18) ? 0 : 1)' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

server_sql() { PGOPTIONS="-c client_min_messages=warning" psql -qAtX -v ON_ERROR_STOP=1 -c "$1" "$server" >/dev/null; }

# An empty database on the server; sets `url`.
fresh_database() { # name
  server_sql "drop database if exists $1 with (force)"
  server_sql "create database $1"
  server_sql checkpoint # what came before leaves nothing to write
  url=${server%/*}/$1
}

# A copy is in no cache, whereas a store that grew to this size, and an empty one, are. Largest first: what does not fit is of the
# jobs that were enqueued first.
warm() { # url
  psql -qAtX -v ON_ERROR_STOP=1 -c 'create extension if not exists pg_prewarm' -f "$here/warm.sql" "$1" >/dev/null
}

run_graphile() { # output file
  fresh_database graphile
  attended "$node_22" "$here/graphile.mjs" --url "$url" --jobs "$jobs" --repeat 1 >"$1" \
    || die "the graphile-worker benchmark failed"
  server_sql "drop database graphile with (force)"
}

# Table sizes at the end of each minute, a line of JSON each. Ends at a TERM at once, its pause included.
sample_sizes() { # file, url
  local pause=''
  trap 'kill "$pause" 2>/dev/null; exit 0' TERM
  trap - EXIT # the parent cleans up
  while true; do
    sleep 60 &
    pause=$!
    wait "$pause"
    psql -qAtX -f "$here/sizes.sql" "$2" >>"$1" 2>/dev/null || true
  done
}

measure_on_postgres() {
  need_postgres >&2
  # Both sides get this: the backlog is 1.6 GB, and a server that holds such tables has more cache than one for tests.
  TMPDIR=$base start_postgres -c shared_buffers=1GB || die "Postgres did not start"
  server=$TIDEGATE_TEST_POSTGRES
  # Both sides get this: with the default of 1 GB, checkpoints would be most of what is measured.
  server_sql "alter system set max_wal_size = '4GB'"
  server_sql "select pg_reload_conf()"

  if ((peer)); then
    need_packages graphile-worker pg
    node_22=$(node_22) || die "no Node of at least 22.18 (npm has one for Linux only)"
  fi

  say_load
  local round
  for ((round = 1; round <= repeat; round++)); do
    say "round $round of $repeat"
    if ((peer)); then
      say "graphile-worker, $jobs jobs"
      run_graphile "$tmp/graphile-$round.json"
      report+=(--peer "$tmp/graphile-$round.json")
    fi
    say "Tidegate, $jobs jobs, empty database"
    fresh_database tidegate_empty
    run_tidegate "$tmp/tidegate-$round.json" --store "$url" --jobs "$jobs"
    report+=(--tidegate "$tmp/tidegate-$round.json")
    server_sql "drop database tidegate_empty with (force)"
  done

  if ((flat)); then
    say "filling the backlog"
    fresh_database tidegate_filled
    local filled=$url
    attended env TIDEGATE_STORE="$filled" "$tidegate" bench fill --backlog "$backlog" \
      || die "filling the backlog failed"
    # What loading left in the log is deleted by whoever works, from a minute later on. It is no part of a backlog.
    psql -qAtX -v ON_ERROR_STOP=1 -c 'delete from tidegate.log where version < (select max(version) from tidegate.log)' "$filled" >/dev/null
    # A table of this size is not what was just loaded into one: vacuum is done with it.
    psql -qAtX -c 'vacuum analyze' "$filled" >/dev/null
    for ((round = 1; round <= repeat; round++)); do
      say "Tidegate, $jobs jobs, large backlog, round $round of $repeat"
      server_sql "drop database if exists tidegate_flat with (force)"
      server_sql "create database tidegate_flat template tidegate_filled strategy file_copy"
      server_sql checkpoint
      warm "${server%/*}/tidegate_flat"
      run_tidegate "$tmp/flat-$round.json" --store "${server%/*}/tidegate_flat" --jobs "$jobs" --backlog "$backlog" --filled
      report+=(--flat "$tmp/flat-$round.json")
      # In turns with it: the machine is not the same as some minutes ago.
      say "Tidegate, $jobs jobs, empty database, round $round of $repeat"
      fresh_database tidegate_empty
      run_tidegate "$tmp/beside-$round.json" --store "$url" --jobs "$jobs"
      report+=(--beside "$tmp/beside-$round.json")
    done
    server_sql "drop database tidegate_flat with (force)"
    server_sql "drop database tidegate_filled with (force)"
  fi

  # Three times as many, and seven turns each: to get four processes going and to end them is in the time, and short turns vary by more than is compared.
  for ((round = 1; round <= repeat; round++)); do
    say "Tidegate, $((jobs * 3)) jobs, 1 process and 4, round $round of $repeat"
    fresh_database tidegate_processes
    run_tidegate "$tmp/processes-$round.json" --store "$url" --jobs "$((jobs * 3))" --processes 4
    report+=(--processes "$tmp/processes-$round.json")
    server_sql "drop database tidegate_processes with (force)"
  done

  if ((minutes)); then
    say "Tidegate, $minutes minutes"
    fresh_database tidegate_steady
    : >"$tmp/sizes.jsonl"
    sample_sizes "$tmp/sizes.jsonl" "$url" &
    sampler_pid=$!
    run_tidegate "$tmp/steady.json" --store "$url" --minutes "$minutes"
    stop_sampler
    report+=(--steady "$tmp/steady.json" --sizes "$tmp/sizes.jsonl")
  fi
  node "$here/report-postgres.mjs" "${report[@]}"
}
