import { zlibSync } from 'fflate';
import { buildReport, type IReportJob } from '../report/report';
import type { IEngineHost, IJobResult } from './jobs';

/** Make a report of a run, which Python asks for as `IReportJob`: the bytes of the whole file. */
export async function makeReport(args: unknown, host: IEngineHost): Promise<IJobResult> {
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
