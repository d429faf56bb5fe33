import { spawn } from 'child_process';
import { createInterface } from 'readline';

/** A process of the tests, with what it wrote. */
export interface IProcess {
  readonly output: readonly string[];
  /** How it ended; undefined while it goes on, negative for a signal. */
  readonly code: number | undefined;
  /** Whether it went with an error before it was ended. */
  readonly died: boolean;
  /** Write a line to its standard input. */
  tell(line: string): void;
  kill(signal: NodeJS.Signals): void;
  /** End it by its id and wait; SIGKILL after 10 s. Safe twice. */
  end(signal?: NodeJS.Signals): Promise<void>;
}

/** Starts Python processes. */
export interface IStarter {
  /** Start Python with a command, once it runs. */
  start(command: string[], environment: NodeJS.ProcessEnv): Promise<IProcess>;
  /** End the processes, and what started them. */
  end(): Promise<void>;
}

/** What `starter.py` tells. */
interface ITold {
  id: number;
  pid?: number;
  line?: string;
  code?: number;
}

/** Python processes that fork from one that has imported what they need. */
export function warmStarter(python: string, script: string, environment: NodeJS.ProcessEnv): IStarter {
  const starter = spawn(python, [script], { env: environment, stdio: ['pipe', 'pipe', 'inherit'] });
  const gone = new Promise<void>(resolve => starter.once('exit', () => resolve()));
  const ask = (what: object): void => void starter.stdin.write(`${JSON.stringify(what)}\n`);
  const hears: ((told: ITold) => void)[] = [];
  const started: IProcess[] = [];
  createInterface({ input: starter.stdout }).on('line', text => {
    const told = JSON.parse(text) as ITold;
    hears[told.id]?.(told);
  });
  // Nobody tells any more how they end.
  starter.once('exit', () => hears.forEach((hear, id) => hear({ id, code: -1 })));
  return {
    start: (command, env) =>
      new Promise(resolve => {
        const id = hears.length;
        const output: string[] = [];
        let [pid, code, ended]: [number | undefined, number | undefined, boolean] = [
          undefined,
          undefined,
          false
        ];
        let isOver = (): void => undefined;
        const over = new Promise<void>(done => (isOver = done));
        const kill = (signal: NodeJS.Signals): void => {
          if (pid !== undefined && code === undefined) {
            process.kill(pid, signal);
          }
        };
        const own: IProcess = {
          output,
          get code() {
            return code;
          },
          get died() {
            return !ended && (code ?? 0) !== 0;
          },
          tell: line => ask({ id, line }),
          kill,
          end: async (signal = 'SIGTERM') => {
            if (code === undefined) {
              ended = true;
              kill(signal);
              const late = setTimeout(() => kill('SIGKILL'), 10_000);
              await over;
              clearTimeout(late);
            }
          }
        };
        hears.push(told => {
          pid ??= told.pid;
          code ??= told.code;
          if (told.line !== undefined) {
            output.push(told.line);
          } else {
            resolve(own);
          }
          if (code !== undefined) {
            isOver();
          }
        });
        started.push(own);
        ask({ id, command, environment: env });
      }),
    end: async () => {
      await Promise.all(started.map(each => each.end()));
      starter.stdin.end();
      await gone;
    }
  };
}

/** Wait for something to become true, asking every 100 ms. */
export async function until<T>(
  what: string,
  ask: () => T | undefined | false | Promise<T | undefined | false>,
  seconds = 30
): Promise<T> {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined && answer !== false) {
      return answer;
    }
    if (Date.now() > end) {
      throw new Error(`Waited ${seconds} s for ${what}.`);
    }
    await new Promise(resolve => setTimeout(resolve, 100));
  }
}
