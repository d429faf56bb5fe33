// Prints a live run in a terminal: `npm run tail -- [ws://HOST:PORT] [--token-file FILE]`. It runs the browser's own client and store.
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { build } from 'esbuild';
import WebSocket from 'ws';

const USAGE = `Usage: npm run tail -- [ws://HOST:PORT] [--token-file FILE]

Prints a live run: one line that updates in place, or one line a step when piped.
Without an address the newest hub of this user is taken. FILE holds the token, or is the hub's runtime file;
without it the runtime file of the hub at that address is looked for.
Exit codes: 0 the run finished or Ctrl-C, 1 the hub is gone or refused, 2 wrong arguments or no hub.`;

const LOST_MS = 10_000;
const TRIES = 5;

/** A text of the run without what a terminal would obey, as `megalens/protocol/outside.py` shows it. */
const shown = text =>
  String(text).replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    '\ufffd'
  );

/** A fault that ends the program with one line. */
class TailError extends Error {
  constructor(message, exitCode) {
    super(message);
    this.exitCode = exitCode;
  }
}

/** Return the folder of the runtime files, as Python's platformdirs finds it. */
function runtimeFolder() {
  const { MEGALENS_RUNTIME_DIR, XDG_RUNTIME_DIR, LOCALAPPDATA } = process.env;
  if (MEGALENS_RUNTIME_DIR) {
    return MEGALENS_RUNTIME_DIR;
  }
  if (process.platform === 'darwin') {
    return join(homedir(), 'Library', 'Caches', 'TemporaryItems', 'megalens');
  }
  if (process.platform === 'win32') {
    return join(LOCALAPPDATA ?? join(homedir(), 'AppData', 'Local'), 'Temp', 'megalens');
  }
  const own = [XDG_RUNTIME_DIR, `/run/user/${process.getuid()}`].find(path => path && isPrivate(path));
  return join(own ?? join(tmpdir(), `runtime-${process.getuid()}`), 'megalens');
}

function isFolder(path) {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

/** Whether a folder is this user's alone: another one is passed over, as the hub does. */
function isPrivate(path) {
  const found = statSync(path, { throwIfNoEntry: false });
  return (
    found !== undefined &&
    found.isDirectory() &&
    found.uid === process.getuid() &&
    (found.mode & 0o777) === 0o700
  );
}

/** Return the runtime files of hubs that run, newest first. */
function hubs(folder) {
  const names = isFolder(folder) ? readdirSync(folder).filter(name => /^hub-.*\.json$/.test(name)) : [];
  return names
    .flatMap(name => {
      const path = join(folder, name);
      try {
        if (process.platform !== 'win32' && (statSync(path).mode & 0o077) !== 0) {
          console.error(shown(`Ignored ${name}: others can read it.`));
          return [];
        }
        const entry = JSON.parse(readFileSync(path, 'utf8'));
        process.kill(entry.pid, 0);
        return entry.format === 1 ? [entry] : [];
      } catch {
        // Half written, or its process is gone.
        return [];
      }
    })
    .sort((a, b) => b.started - a.started);
}

/** Read the token out of a file that is one, or out of a runtime file. */
function tokenIn(path) {
  let text;
  try {
    text = readFileSync(path, 'utf8').trim();
  } catch (error) {
    throw new TailError(
      `Could not read the token file ${path}: ${error.code}. Name the hub's runtime file or a file with its token.`,
      2
    );
  }
  return text.startsWith('{') ? String(JSON.parse(text).token) : text;
}

/** Find out where to connect and with which token. */
function target() {
  let parsed;
  try {
    parsed = parseArgs({
      allowPositionals: true,
      options: { 'token-file': { type: 'string' }, help: { type: 'boolean', short: 'h' } }
    });
  } catch (error) {
    throw new TailError(`${error.message}\n\n${USAGE}`, 2);
  }
  const { values, positionals } = parsed;
  if (values.help) {
    console.log(USAGE);
    process.exit(0);
  }
  const [address] = positionals;
  const folder = runtimeFolder();
  if (positionals.length > 1 || (address !== undefined && !/^wss?:\/\/[^/?#]+\/?$/.test(address))) {
    throw new TailError(
      `An address such as ws://127.0.0.1:45671 was expected, and ${positionals.join(' ')} came.\n\n${USAGE}`,
      2
    );
  }
  if (address === undefined) {
    const [newest] = hubs(folder);
    if (newest === undefined) {
      throw new TailError(
        'No hub runs here now. Start a training script with megalens.trace(model), or name an address.',
        2
      );
    }
    return { address: addressOf(newest), token: newest.token };
  }
  if (values['token-file'] !== undefined) {
    return { address, token: tokenIn(values['token-file']) };
  }
  const known = hubs(folder).find(entry => addressOf(entry) === address.replace(/\/$/, ''));
  if (known === undefined) {
    throw new TailError(
      `No runtime file here belongs to ${address}. Name a file with the hub's token: --token-file FILE.`,
      2
    );
  }
  return { address, token: known.token };
}

function addressOf({ host, port }) {
  return `ws://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** Bundle the TypeScript sources as they are and load them. */
async function loadStore() {
  const root = join(dirname(fileURLToPath(import.meta.url)), '..');
  const folder = mkdtempSync(join(tmpdir(), 'megalens-tail-'));
  try {
    await build({
      stdin: { contents: "export { LiveRun } from './src/store/live-run';", resolveDir: root },
      bundle: true,
      outfile: join(folder, 'store.mjs'),
      format: 'esm',
      mainFields: ['module', 'main'],
      platform: 'node',
      logLevel: 'error'
    });
    return await import(pathToFileURL(join(folder, 'store.mjs')).href);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const whole = number =>
  Math.round(number)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, '\u202f');

function short(number) {
  if (!Number.isFinite(number)) {
    return String(number);
  }
  const size = Math.abs(number);
  if (size >= 1e4 && size < 1e15) {
    const power = Math.min(4, Math.floor(Math.log10(size) / 3));
    return `${Number((number / 1000 ** power).toPrecision(3))}${['', 'k', 'M', 'G', 'T'][power]}`;
  }
  return String(Number(number.toPrecision(4))).replace('-', '\u2212');
}

/** Return what is known of one step: its scalars, and how much was traced. */
async function stepText(run, step) {
  const { step: steps, value, name, units } = await run.scalars();
  const parts = [];
  for (let row = steps.length - 1; row >= 0; row -= 1) {
    if (steps[row] === step) {
      parts.unshift(`${name[row]} ${short(value[row])}${units[name[row]] ? ` ${units[name[row]]}` : ''}`);
    }
  }
  let rows = 0;
  let bytes = 0;
  for (const { name: flag } of run.hello?.flags ?? []) {
    const found = (await run.tensors({ flag, steps: [step, step] })).rows;
    rows += found.length;
    bytes += found.reduce((sum, row) => sum + row.values.byteLength, 0);
  }
  if (rows > 0) {
    parts.push(`${rows} tensors ${short(bytes / 1024)} KiB`);
  }
  return parts.join('  ');
}

function stateText({ status, connection, name }) {
  const parts = [name || 'run', connection.kind === 'live' ? (status?.state ?? 'live') : connection.kind];
  parts.push(`step ${whole(status?.step ?? 0)}`);
  if (status?.probes) {
    parts.push(`probes ${status.probes.fired}/${status.probes.expected}`);
  }
  if (status?.overhead) {
    parts.push(`overhead ${status.overhead.percent.toFixed(1)} %`);
  }
  const dropped = status?.dropped;
  parts.push(
    `dropped ${whole(dropped ? dropped.producer + dropped.viewer : 0)}`,
    `non-finite ${whole(status?.nonfinite?.count ?? 0)}`
  );
  return parts.join('  ');
}

/** Print the run until it ends. Resolves with the exit code. */
async function tail(run, refusal) {
  const terminal = process.stdout.isTTY;
  const waiting = new Set();
  let busy = Promise.resolve();
  let lostSince = null;

  const flush = async last => {
    const newest = Math.max(-1, ...waiting);
    const ready = [...waiting].filter(step => last || step < newest).sort((a, b) => a - b);
    for (const step of ready) {
      waiting.delete(step);
      const text = await stepText(run, step);
      if (text && !terminal) {
        console.log(shown(`step ${step}  ${text}`));
      }
    }
    if (terminal) {
      const text = `${stateText(run)}  ${newest < 0 ? '' : await stepText(run, newest)}`;
      process.stdout.write(`\r\x1b[K${shown(text).slice(0, (process.stdout.columns ?? 80) - 1)}`);
    }
  };

  return new Promise(resolve => {
    const end = (code, text) => {
      clearInterval(clock);
      busy = busy
        .then(() => flush(true))
        .then(() => {
          if (terminal) {
            process.stdout.write('\n');
          }
          if (text) {
            (code === 0 ? console.log : console.error)(shown(text));
          }
          resolve(code);
        });
    };
    const clock = setInterval(() => {
      if (lostSince !== null && Date.now() - lostSince > LOST_MS) {
        end(1, 'The training process went without a goodbye.');
      }
    }, 500);
    process.once('SIGINT', () => end(0, ''));
    process.once('SIGTERM', () => end(0, ''));
    let ended = false;
    run.changed.connect((_, change) => {
      if (change.kind === 'rows') {
        for (
          let step = Math.max(change.firstStep, change.lastStep - 100_000);
          step <= change.lastStep;
          step += 1
        ) {
          waiting.add(step);
        }
      }
      if (ended) {
        return;
      }
      const { status, connection } = run;
      lostSince = status?.state === 'lost' ? (lostSince ?? Date.now()) : null;
      if (connection.kind === 'closed') {
        ended = true;
        end(connection.reason === 'finished' ? 0 : 1, refusal() ?? connection.message);
      } else if (change.kind === 'status' && status?.state === 'finished') {
        ended = true;
        // Rows that came with this status are told of within 50 ms.
        setTimeout(() => end(0, `${run.name} finished at step ${whole(status.step)}.`), 100);
      } else {
        busy = busy.then(() => flush(false));
      }
    });
  });
}

async function main() {
  const { address, token } = target();
  const { LiveRun } = await loadStore();
  let refused = null;
  let failures = 0;
  const openSocket = protocols => {
    const socket = new WebSocket(address, protocols, {
      headers: { Authorization: `Bearer ${token}` },
      perMessageDeflate: false
    });
    socket.once('open', () => {
      failures = 0;
    });
    socket.once('unexpected-response', (_, response) => {
      refused =
        response.statusCode === 401
          ? `The hub at ${address} refused the token. Name the runtime file of this hub with --token-file.`
          : `${address} answered ${response.statusCode}, which no hub does. Check the address.`;
      socket.terminate();
    });
    return socket;
  };
  const diagnose = async () => {
    failures += 1;
    if (refused !== null) {
      return { kind: 'closed', reason: 'forbidden', message: refused };
    }
    const message = `No hub answers at ${address}. Check that the training script still runs.`;
    return failures < TRIES ? null : { kind: 'closed', reason: 'gone', message };
  };
  const run = new LiveRun({ openSocket, peer: { name: 'tail', version: '0.1.0' }, diagnose });
  const code = await tail(run, () => refused);
  run.dispose();
  return code;
}

try {
  process.exitCode = await main();
} catch (error) {
  if (!(error instanceof TailError)) {
    throw error;
  }
  console.error(shown(error.message));
  process.exitCode = error.exitCode;
}
