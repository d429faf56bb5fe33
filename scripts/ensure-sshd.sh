#!/usr/bin/env bash
# Find an ssh server for the tests of megalens tunnel, or unpack Debian's into .make/sshd: nothing is installed or started.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x .make/sshd/usr/sbin/sshd ] || [ -x /usr/sbin/sshd ] && exit 0
if command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1; then
  echo "Unpacking Debian's openssh-server for the tests"
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  fetch() { (cd "$folder" && apt-get download -qq openssh-server libwrap0 >log 2>&1); }
  # The lists of packages may be absent.
  if fetch || { [ "$(id -u)" = 0 ] && apt-get update -qq >"$folder/log" 2>&1 && fetch; }; then
    mkdir -p .make/sshd
    for package in "$folder"/*.deb; do dpkg -x "$package" .make/sshd; done
    exit 0
  fi
  tail -n 3 "$folder/log" >&2
fi
echo "The tests of megalens tunnel need an ssh server: install OpenSSH's (Debian: apt install openssh-server)." >&2
exit 1
