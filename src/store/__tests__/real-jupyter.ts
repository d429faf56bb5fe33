import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import WebSocket from 'ws';
import { until } from '../../client/__tests__/real-hub';
import { RunsApi, type IHubSocket, type SocketFactory } from '../../client';

const ROOT = join(__dirname, '../../..');
const TOKEN = 'a-token-of-this-test';

/** A Jupyter server of our own with the extension, its root in an empty folder. */
export class RealJupyter {
  private constructor(
    private readonly process: ChildProcess,
    readonly folder: string,
    readonly baseUrl: string
  ) {}

  /**
   * @param runtimeFolder - Where it looks for hubs.
   */
  static async start(folder: string, runtimeFolder: string): Promise<RealJupyter> {
    const own = mkdtempSync(join(tmpdir(), 'megalens-jupyter-'));
    const child = spawn(
      join(ROOT, '.venv/bin/python'),
      [
        '-m',
        'jupyter_server',
        '--allow-root',
        '--no-browser',
        '--ServerApp.port=0',
        '--ServerApp.base_url=/deep/down/',
        `--ServerApp.root_dir=${folder}`,
        "--ServerApp.jpserver_extensions={'megalens.server': True}",
        "--MegalensExtension.allowed_hubs=['127.0.0.1:*']"
      ],
      {
        cwd: ROOT,
        env: {
          ...process.env,
          MEGALENS_RUNTIME_DIR: runtimeFolder,
          JUPYTER_RUNTIME_DIR: join(own, 'runtime'),
          JUPYTER_CONFIG_DIR: join(own, 'config'),
          JUPYTER_TOKEN: TOKEN,
          PYTHONPATH: ROOT
        },
        stdio: 'ignore'
      }
    );
    let url = '';
    await until(
      () => {
        try {
          const [name] = readdirSync(join(own, 'runtime')).filter(file => /^jpserver-\d+\.json$/.test(file));
          ({ url } = JSON.parse(readFileSync(join(own, 'runtime', name ?? ''), 'utf8')) as { url: string });
        } catch {
          // Not written yet, or half.
        }
        return url !== '' || child.exitCode !== null;
      },
      'the Jupyter server starts',
      60_000
    );
    // The file is there a moment before the server listens.
    const answers = (): Promise<boolean> =>
      fetch(`${url}api`, { headers: { Authorization: `token ${TOKEN}` } }).then(
        response => response.ok,
        () => false
      );
    while (child.exitCode === null && !(await answers())) {
      await new Promise(resolve => setTimeout(resolve, 20));
    }
    return new RealJupyter(child, own, url);
  }

  api(token = TOKEN): RunsApi {
    return new RunsApi({
      baseUrl: this.baseUrl,
      fetch: (url, init) =>
        fetch(url, {
          ...init,
          headers: { ...(init.headers as Record<string, string>), Authorization: `token ${token}` }
        })
    });
  }

  opener(id: string): SocketFactory {
    const url = `${this.baseUrl.replace(/^http/, 'ws')}megalens/ws/runs/${encodeURIComponent(id)}`;
    return protocols =>
      new WebSocket(url, protocols, {
        headers: { Authorization: `token ${TOKEN}` }
      }) as unknown as IHubSocket;
  }

  async stop(): Promise<void> {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      const ended = new Promise(resolve => this.process.once('exit', resolve));
      this.process.kill('SIGTERM');
      await ended;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}
