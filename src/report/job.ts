import { zlibSync } from 'fflate';
import { registerJob, type IEngineHost, type IJobResult } from '../engine/jobs';
import { buildReport, type IReportRequest } from './report';

/** Make a report of a run, which Python asks for as `IReportRequest`: the bytes of the whole file. */
async function makeReport(args: unknown, host: IEngineHost): Promise<IJobResult> {
  const text = await buildReport(args as IReportRequest, {
    open: async id => {
      const reader = host.reader(id);
      return { reader, detail: await reader.detail() };
    },
    progress: (done, total, words) => host.progress(done, total, words),
    deflate: bytes => zlibSync(bytes, { level: 9 })
  });
  return { json: null, bytes: new TextEncoder().encode(text) };
}

registerJob('report', makeReport);
