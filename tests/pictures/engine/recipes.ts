import { drawSVG } from '../../../src/charts/pictures';
import { LIGHT_THEME } from '../../../src/charts/vega';
import type { IEngineHost, IJobResult } from '../../../src/engine/jobs';
import { runsOf, type IStillJob } from '../../../src/engine/view-jobs';
import type { IViewRuns } from '../../../src/views/view';
import { SLICES } from '../../../src/instruments/slices.generated';
import { registerSlices } from '../../../src/slice';
import { readView } from '../../../src/views/still';

registerSlices(SLICES);

/** What a view reads and draws, whole: titles, captions, recipes with their rows, and the drawings. */
export async function recipes(
  args: unknown,
  host: IEngineHost,
  runs: IViewRuns = runsOf(host)
): Promise<IJobResult> {
  const { run, options } = args as IStillJob;
  const { source, dispose } = await runs.acquire(run);
  try {
    const stills = await readView(source, options, { runs });
    const drawings = [];
    for (const { recipe } of stills) {
      drawings.push(recipe && (await drawSVG(recipe, { theme: LIGHT_THEME })));
    }
    return { json: { stills, drawings } };
  } finally {
    dispose();
  }
}
