import { zlibSync } from 'fflate';
import { drawSVG } from '../charts/pictures';
import { LIGHT_THEME } from '../charts/vega';
import type { ViewOptions } from '../protocol/views.generated';
import { buildReport, type IReportJob } from '../report/report';
import { RecordedRun } from '../store/recorded-run';
import { readView } from '../views/still';
import type { IViewRuns } from '../views/view';
import type { IEngineHost, IJobResult } from './jobs';

/**
 * What the job `still` is asked for: a view of a run, with all of its options, and how wide its pictures are.
 */
export interface IStillJob {
  readonly run: string;
  readonly options: ViewOptions;
  /** Pixels; the views' own choice when absent. */
  readonly width?: number;
}

/**
 * Read a view of a run and draw its pictures: `{title, caption, summary, svg}` each, `svg` empty where there
 * is nothing to draw.
 */
export async function drawStills(args: unknown, host: IEngineHost): Promise<IJobResult> {
  const { run, options, width } = args as IStillJob;
  const runs = runsOf(host);
  const { source, dispose } = await runs.acquire(run);
  try {
    const stills = await readView(source, options, { width, runs });
    const drawn = [];
    for (const { title, caption, summary, recipe } of stills) {
      const svg = recipe === null ? '' : await drawSVG(recipe, { theme: LIGHT_THEME });
      drawn.push({ title, caption, summary, svg });
    }
    return { json: drawn };
  } finally {
    dispose();
  }
}

/** The runs that the host can open, each as a source that asks it for rows. */
export function runsOf(host: IEngineHost): IViewRuns {
  return {
    list: () => Promise.resolve([]),
    acquire: async id => {
      const source = new RecordedRun(id, await host.reader.detail(id), host.reader);
      return { source, dispose: () => source.dispose() };
    }
  };
}

/** Make a report of a run, which Python asks for as `IReportJob`: the bytes of the whole file. */
export async function makeReport(args: unknown, host: IEngineHost): Promise<IJobResult> {
  const text = await buildReport(args as IReportJob, {
    open: async id => ({ reader: host.reader, detail: await host.reader.detail(id) }),
    progress: (done, total, words) => host.progress(done, total, words),
    deflate: bytes => zlibSync(bytes, { level: 6 })
  });
  return { json: null, bytes: new TextEncoder().encode(text) };
}
