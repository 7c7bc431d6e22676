# Shared by the scripts. Source it.

# The bundled SQLite is compiled from C.
need_compiler() {
  command -v cc >/dev/null 2>&1 && return
  echo "installing a C compiler" >&2
  apt-get update -qq && apt-get install -y -qq gcc libc6-dev
}
