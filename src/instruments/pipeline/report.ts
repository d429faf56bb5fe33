import type { IReportPart } from '../../report/report-part';
import type { IRunSource } from '../../store/source';
import { PIPELINE } from './client/pipeline-api';

/** A plan says something of a run that is a pipeline. */
export async function lookForReport(run: IRunSource): Promise<IReportPart> {
  const steps = await run
    .asker?.(PIPELINE)?.({})
    .catch(() => null);
  return { has: {}, views: (steps?.stages ?? 0) > 1 ? [{ view: 'pipeline', schedule: 'measured' }] : [] };
}
