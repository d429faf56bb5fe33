import type { IReportPart } from '../../report/report-part';
import type { IRunSource } from '../../store/source';
import { TIMELINE } from './client/timeline-api';

/** What a report shows of the spans of a run. */
export async function lookForReport(run: IRunSource): Promise<IReportPart> {
  const timeline = await run
    .asker?.(TIMELINE)?.({ ranks: '0', columns: 1 })
    .catch(() => null);
  return { has: { spans: Boolean(timeline) } };
}
