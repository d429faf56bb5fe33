import type { IReportPart } from '../../report/report-part';
import type { IRunSource } from '../../store/source';

/** What a report shows of the alarms of a run. */
export async function lookForReport(run: IRunSource): Promise<IReportPart> {
  const alarms = await run.table('alarms').catch(() => null);
  return { has: { alarms: (alarms?.length ?? 0) > 0 } };
}
