#!/usr/bin/env bash
# Say which Node is needed before npm says it in many more lines.
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' 2>/dev/null || {
  echo "Megalens needs Node 20.19 or newer to build; found $(node --version 2>/dev/null || echo none). Install it and run make again." >&2
  exit 1
}
