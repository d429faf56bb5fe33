import { spawn, type ChildProcess } from 'child_process';
import { createInterface } from 'readline';

/** A process of the tests, with what it wrote. */
export interface IProcess {
  readonly child: ChildProcess;
  readonly output: string[];
  /** Whether it went with an error before it was ended. */
  readonly died: boolean;
  /** End it by its id and wait; SIGKILL after 10 s. Safe twice. */
  end(signal?: NodeJS.Signals): Promise<void>;
}

/** Start a process in the checkout. */
export function start(command: string, args: string[], env: NodeJS.ProcessEnv): IProcess {
  const child = spawn(command, args, { env, stdio: ['pipe', 'pipe', 'pipe'] });
  const output: string[] = [];
  let ended = false;
  const gone = new Promise<void>(resolve => child.once('exit', () => resolve()));
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream! }).on('line', line => output.push(line));
  }
  return {
    child,
    output,
    get died() {
      return !ended && ((child.exitCode ?? 0) !== 0 || child.signalCode !== null);
    },
    end: async (signal = 'SIGTERM') => {
      ended ||= child.exitCode === null && child.signalCode === null;
      if (child.exitCode === null && child.signalCode === null) {
        child.kill(signal);
        const late = setTimeout(() => child.kill('SIGKILL'), 10_000);
        await gone;
        clearTimeout(late);
      }
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
