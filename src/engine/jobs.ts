import type { AskReader, PutQuestion } from '../client/ask-reader';

/** What a job may do beyond computing: ask the Python process that started it. */
export interface IEngineHost {
  readonly ask: PutQuestion;
  /** Tell how far the job is. */
  progress(done: number, total: number, words: string): void;
  /** Reads the rows of runs. */
  readonly reader: AskReader;
}

/** What a job gives: JSON, and bytes where it has some. */
export interface IJobResult {
  readonly json: unknown;
  readonly bytes?: Uint8Array;
}

/** Does one kind of work. `args` came from Python as JSON and are to be checked where they matter. */
export type Job = (args: unknown, host: IEngineHost) => Promise<IJobResult>;

const jobs = new Map<string, Job>();

export function registerJob(name: string, job: Job): void {
  jobs.set(name, job);
}

export function jobNamed(name: string): Job | undefined {
  return jobs.get(name);
}
