import { randomBytes } from 'crypto';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'fs';
import { createServer, type AddressInfo } from 'net';
import { tmpdir } from 'os';
import { delimiter, join, resolve } from 'path';
import { until, warmStarter, type IProcess } from './processes';

const ROOT = resolve(__dirname, '..');
const PIPELINE = join(ROOT, 'examples/pipeline/train.py');
const PYTHON = join(ROOT, '.venv/bin/python');
/** Seconds that a process may take until it answers; torch, which the first one waits for, is imported in 20 on a busy machine. */
const START_WITHIN = 75;

/** A running JupyterLab with a folder of its own. */
export interface ILab {
  /** Base URL with its trailing slash. */
  readonly url: string;
  /** The server's root folder. */
  readonly folder: string;
  readonly token: string;
  /** Start Python with a command, where it finds the same runs; it ends with JupyterLab. */
  start(command: string[]): Promise<IProcess>;
  /** The hubs that are up: some outlive their training for a while. */
  hubs(): { id: string; pid: number }[];
  /** Start a training run that is recorded below the server's root; `job` is one of eight processes, as the wire sees it, and allows as much as `allowing`; `pipeline` is that of two stages in examples/. */
  train(
    name: string,
    options?: {
      traced?: boolean;
      allowing?: boolean;
      statistics?: boolean;
      monitor?: boolean;
      timeline?: boolean;
      rate?: number;
      job?: boolean;
      pipeline?: boolean;
    }
  ): Promise<ITraining>;
}

/** A running training process. */
export interface ITraining {
  readonly id: string;
  readonly name: string;
  readonly process: IProcess;
  /** Id of the hub's process. */
  readonly hub: number;
  /** Make one activation non-finite. */
  spoil(): void;
  /** Write a line that its script understands. */
  tell(line: string): void;
}

/** Run JupyterLab and its trainings for as long as `use` takes. */
export async function withLab(basePath: string, use: (lab: ILab) => Promise<void>): Promise<void> {
  const home = mkdtempSync(join(tmpdir(), 'megalens-ui-'));
  const folder = join(home, 'root');
  const runtime = join(home, 'hubs');
  mkdirSync(join(folder, 'megalens-runs'), { recursive: true });
  mkdirSync(runtime, { mode: 0o700 });
  const settings = join(home, 'settings/@jupyterlab/apputils-extension');
  mkdirSync(settings, { recursive: true });
  writeFileSync(
    join(settings, 'notification.jupyterlab-settings'),
    '{"fetchNews": "false", "checkForUpdates": false}'
  );
  // At every start of a page JupyterLab would ask npm, in a process of its own, whether it should be built anew.
  mkdirSync(join(home, 'config/labconfig'), { recursive: true });
  writeFileSync(
    join(home, 'config/labconfig/page_config.json'),
    '{"buildCheck": false, "buildAvailable": false}'
  );
  // What is built here, whatever is installed; a copy, since Voila serves nothing through a link.
  const share = join(home, 'share');
  cpSync(join(ROOT, 'megalens/labextension'), join(share, 'labextensions/megalens'), { recursive: true });
  // So are the texts in other languages, which JupyterLab finds by what a package says at its installation.
  const found = join(home, 'packages');
  const about = join(found, 'megalens_texts-0.dist-info');
  mkdirSync(about, { recursive: true });
  writeFileSync(join(about, 'METADATA'), 'Metadata-Version: 2.1\nName: megalens-texts\nVersion: 0\n');
  writeFileSync(join(about, 'entry_points.txt'), '[jupyterlab.locale]\nmegalens = megalens\n');
  const env: NodeJS.ProcessEnv = {
    ...process.env,
    PATH: `${join(ROOT, '.venv/bin')}:${process.env.PATH}`,
    PYTHONPATH: [ROOT, found].join(delimiter),
    MEGALENS_RUNTIME_DIR: runtime,
    JUPYTER_CONFIG_DIR: join(home, 'config'),
    JUPYTER_DATA_DIR: join(home, 'data'),
    JUPYTER_PATH: share,
    JUPYTER_RUNTIME_DIR: join(home, 'runtime'),
    JUPYTERLAB_SETTINGS_DIR: join(home, 'settings'),
    JUPYTERLAB_WORKSPACES_DIR: join(home, 'workspaces'),
    IPYTHONDIR: join(home, 'ipython')
  };
  const token = randomBytes(16).toString('hex');
  const port = await freePort();
  const url = `http://127.0.0.1:${port}${basePath}`;
  // Threads of OpenMP are counted when torch is loaded: one is enough for models as small as these.
  const starter = warmStarter(PYTHON, join(__dirname, 'starter.py'), { ...env, OMP_NUM_THREADS: '1' });
  const processes: IProcess[] = [];
  const server = await starter.start(
    [
      '-m',
      'jupyterlab',
      '--no-browser',
      '--allow-root',
      // JupyterLab's own switch for tests: the page says when its start is over.
      '--LabApp.expose_app_in_browser=True',
      `--ServerApp.port=${port}`,
      '--ServerApp.port_retries=0',
      '--ServerApp.ip=127.0.0.1',
      `--ServerApp.base_url=${basePath}`,
      `--ServerApp.root_dir=${folder}`,
      `--IdentityProvider.token=${token}`
    ],
    env
  );
  processes.push(server);
  const hubs = () =>
    readdirSync(runtime)
      .filter(name => /^hub-.*\.json$/.test(name))
      .map(name => JSON.parse(readFileSync(join(runtime, name), 'utf-8')) as { id: string; pid: number });
  const train: ILab['train'] = async (name, options = {}) => {
    const pipeline = [
      ...['-m', 'torch.distributed.run', '--nproc-per-node=2', '--standalone', PIPELINE],
      ...[
        `--name=${name}`,
        `--record=${join(folder, 'megalens-runs')}`,
        '--steps=1000000',
        '--layers=4',
        '--rate=4'
      ]
    ];
    const training = await starter.start(
      options.pipeline
        ? pipeline
        : [
            join(__dirname, options.job ? 'job.py' : 'trainer.py'),
            `--name=${name}`,
            `--record=${join(folder, 'megalens-runs')}`,
            `--rate=${options.rate ?? 5}`,
            ...(options.traced ? ['--traced'] : []),
            ...(options.allowing ? ['--allowing'] : []),
            ...(options.statistics ? ['--statistics'] : []),
            ...(options.monitor ? ['--monitor'] : []),
            ...(options.timeline ? ['--timeline=phases'] : [])
          ],
      env
    );
    processes.push(training);
    const named = () => {
      if (training.code !== undefined) {
        throw new Error(training.output.join('\n'));
      }
      return options.pipeline
        ? hubs().find(entry => entry.id.includes(name))?.id
        : training.output.find(line => /^[A-Za-z0-9._-]+$/.test(line));
    };
    const id = await until(`the training ${name}`, named, START_WITHIN);
    const hub = await until('the hub', () => hubs().find(entry => entry.id === id)?.pid);
    // What torch loads for the first step is work too: no test counts it as waiting for a picture.
    const stepped = () => (named(), options.pipeline || training.output.includes('first step taken'));
    await until(`the first step of ${name}`, stepped, START_WITHIN);
    const { tell } = training;
    return { id, name, process: training, hub, spoil: () => tell('nan'), tell };
  };
  try {
    const answers = () =>
      fetch(`${url}api`).then(
        answer => answer.ok,
        () => {
          if (server.code !== undefined) {
            throw new Error(server.output.join('\n'));
          }
          return false;
        }
      );
    await until('JupyterLab', answers, START_WITHIN);
    const start: ILab['start'] = async command => {
      const started = await starter.start(command, env);
      processes.push(started);
      return started;
    };
    await use({ url, folder, token, start, hubs, train });
    const died = processes.filter(each => each.died);
    if (died.length > 0) {
      // Whatever a test waited for in vain, this is why.
      throw new Error(died.map(each => each.output.join('\n')).join('\n\n'));
    }
  } finally {
    await starter.end();
    // A hub lingers for viewers and packs its recording; nobody wants it any more, and its own process id says which one to end.
    for (const { pid } of hubs()) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // It went by itself.
      }
    }
    // One that was closing already, and has no file of its own any more, may still write its recording.
    await until('the folder of the tests to go', () => removed(home), 60);
  }
}

/** Remove a folder; false while somebody still writes in it. */
function removed(folder: string): boolean {
  try {
    rmSync(folder, { recursive: true, force: true });
    return true;
  } catch {
    return false;
  }
}

export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise(resolve => server.close(resolve));
  return port;
}
