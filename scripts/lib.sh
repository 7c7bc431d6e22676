# Shared by the scripts. Source it.

# Installs Debian packages that are missing: need COMMAND PACKAGE...
need() {
  local command=$1
  shift
  command -v "$command" >/dev/null 2>&1 && return
  echo "installing $*" >&2
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

# The bundled SQLite is compiled from C.
need_compiler() { need cc gcc libc6-dev; }

# Directory of Postgres' programs.
postgres_bin() {
  local dir
  for dir in "$(dirname "$(readlink -f "$(command -v initdb || echo /nowhere/initdb)")")" /usr/lib/postgresql/*/bin; do
    if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then
      echo "$dir"
      return
    fi
  done
  return 1
}

need_postgres() {
  postgres_bin >/dev/null && command -v psql >/dev/null 2>&1 && return
  echo "installing postgresql" >&2
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql postgresql-client >/dev/null
}

# A port nobody listens on.
free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Starts a private Postgres as an ordinary user, in a directory of its own, and sets POSTGRES_PID, POSTGRES_DIR and
# TIDEGATE_TEST_POSTGRES. Postgres refuses to run as root, so root lends it another user.
start_postgres() {
  local dir bin port as=()
  bin=$(postgres_bin)
  port=$(free_port)
  dir=$(mktemp -d)
  POSTGRES_DIR=$dir
  if [ "$(id -u)" = 0 ]; then
    local user=nobody
    id postgres >/dev/null 2>&1 && user=postgres
    chown "$user" "$dir"
    as=(setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups --)
  fi
  (cd "$dir" && "${as[@]}" "$bin/initdb" -D "$dir/data" -U tidegate -A trust -E UTF8 --locale=C.UTF-8 >"$dir/initdb.log" 2>&1) ||
    { cat "$dir/initdb.log" >&2; return 1; }
  (cd "$dir" && exec "${as[@]}" "$bin/postgres" -D "$dir/data" -p "$port" -k "$dir" \
    -c listen_addresses=127.0.0.1 -c max_connections=200 -c shared_buffers=256MB "$@" >"$dir/postgres.log" 2>&1) &
  POSTGRES_PID=$!
  export TIDEGATE_TEST_POSTGRES="postgres://tidegate@127.0.0.1:$port/postgres"
  local tries
  for tries in $(seq 100); do
    if psql -qAtc 'select 1' "$TIDEGATE_TEST_POSTGRES" >/dev/null 2>&1; then return; fi
    kill -0 "$POSTGRES_PID" 2>/dev/null || break
    sleep 0.1
  done
  echo "Postgres did not start after $tries tries:" >&2
  tail -20 "$dir/postgres.log" >&2
  return 1
}

# Stops what start_postgres started, by its pid.
stop_postgres() {
  [ -n "${POSTGRES_PID:-}" ] || return 0
  kill -INT "$POSTGRES_PID" 2>/dev/null || true
  wait "$POSTGRES_PID" 2>/dev/null || true
  rm -rf "$POSTGRES_DIR"
  POSTGRES_PID=
}
