import { zlibSync } from 'fflate';
import type { IRunReader } from '../client/run-reader';
import type { IRunDetail } from '../client/runs-api';
import { buildReport, type IReportJob } from './report';

/** What the job needs of the engine's host. */
export interface IReportJobHost {
  reader(run: string): IRunReader & { detail(): Promise<IRunDetail> };
  progress(done: number, total: number, words: string): void;
}

/** Make a report of a run, which Python asks for as `IReportJob`: the bytes of the whole file. */
export async function makeReport(
  args: unknown,
  host: IReportJobHost
): Promise<{ json: null; bytes: Uint8Array }> {
  const text = await buildReport(args as IReportJob, {
    open: async id => {
      const reader = host.reader(id);
      return { reader, detail: await reader.detail() };
    },
    progress: (done, total, words) => host.progress(done, total, words),
    deflate: bytes => zlibSync(bytes, { level: 6 })
  });
  return { json: null, bytes: new TextEncoder().encode(text) };
}
