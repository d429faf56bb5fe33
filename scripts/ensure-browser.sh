#!/usr/bin/env bash
# Find a Chromium for the browser tests, or install Debian's when root. $CHROMIUM overrides.
find_browser() {
  for candidate in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
    if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1; then
      return 0
    fi
  done
  return 1
}
find_browser && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "Installing Debian's chromium for the browser tests"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } >/tmp/megalens-chromium.log 2>&1
  find_browser && exit 0
  tail -n 3 /tmp/megalens-chromium.log >&2
fi
echo "The browser tests need Chromium: install it (Debian: apt install chromium) or set CHROMIUM to its path." >&2
exit 1
