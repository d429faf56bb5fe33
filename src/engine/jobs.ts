import type { IRunReader } from '../client/run-reader';
import type { IRunDetail } from '../client/runs-api';

export interface IEngineAnswer {
  readonly json: unknown;
  readonly bytes: Uint8Array | null;
}

/** A reader of one run that also knows its description. */
export interface IEngineReader extends IRunReader {
  detail(): Promise<IRunDetail>;
}

/** What a job may do beyond computing: ask the Python process that started it. */
export interface IEngineHost {
  /** Rejects with a `ClientError` where the host refuses. */
  ask(method: string, body: object): Promise<IEngineAnswer>;
  /** Tell how far the job is. */
  progress(done: number, total: number, words: string): void;
  /** Reads the rows of a run, by its id. */
  reader(run: string): IEngineReader;
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
