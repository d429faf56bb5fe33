import { buildSync } from 'esbuild';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { IAggregateWorker } from '..';

/** Opens the worker's own file in threads of Node, behind the handlers of a browser's worker. */
export class NodeWorkers {
  /**
   * @param entry - Path of the worker's file.
   */
  constructor(entry = join(__dirname, '../aggregate-worker.ts')) {
    this.folder = mkdtempSync(join(tmpdir(), 'megalens-worker-'));
    this.bundle = join(this.folder, 'aggregate-worker.mjs');
    this.missing = join(this.folder, 'not-there.mjs');
    const built = buildSync({
      entryPoints: [entry],
      bundle: true,
      write: false,
      format: 'esm',
      platform: 'neutral'
    });
    // The two names of a browser worker's scope, tied to Node's port.
    const port =
      "import { parentPort } from 'node:worker_threads';\n" +
      'globalThis.postMessage = (message, transfer) => parentPort.postMessage(message, transfer);\n' +
      "parentPort.on('message', data => globalThis.onmessage({ data }));\n";
    writeFileSync(this.bundle, port + (built.outputFiles[0]?.text ?? ''));
  }

  /** A file that does not exist: a worker that breaks as it starts. */
  readonly missing: string;
  readonly opened: Worker[] = [];

  open(file = this.bundle): IAggregateWorker {
    const worker = new Worker(file);
    this.opened.push(worker);
    const face: IAggregateWorker = {
      onmessage: null,
      onerror: null,
      postMessage: (message, transfer) => worker.postMessage(message, transfer as ArrayBuffer[]),
      terminate: () => worker.terminate()
    };
    worker.on('message', data => face.onmessage?.({ data }));
    worker.on('error', error => face.onerror?.(error));
    return face;
  }

  async dispose(): Promise<void> {
    await Promise.all(this.opened.map(worker => worker.terminate()));
    rmSync(this.folder, { recursive: true });
  }

  private readonly folder: string;
  private readonly bundle: string;
}
